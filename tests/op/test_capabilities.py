"""Every instruction set that this processor runs, not only the best: ``LLTM_CPU_CAPABILITY``."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lltm import _processor, jit

CAPABILITIES = (
    ("baseline", "avx2", "avx512", "avx512_bf16", "amx")
    if platform.machine() == "x86_64"
    else ("baseline", "neon_bf16")
)
"""Slowest first, as ``torch.ops.lltm.cpu_capability`` calls them."""
BEST = torch.ops.lltm.cpu_capability()
HERE = CAPABILITIES[: CAPABILITIES.index(BEST) + 1]
SUITE = ("test_equivalence.py", "test_oracle.py", "test_bounds.py", "test_containment.py")
# Eager's error is not theirs to match: its products use the best instructions there are.
SELECTION = "(fused or pointwise) and not every_batch_size and not normwise and not eager"

PYTEST = """
import sys, pytest, torch, lltm
ended = pytest.main(sys.argv[1:])
print(torch.ops.lltm.cpu_capability())
sys.exit(ended)
"""

pytestmark = pytest.mark.subprocess


def run(capability: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "LLTM_CPU_CAPABILITY": capability},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("capability", HERE[:-1])
def test_the_suite_of_values_passes_on_lesser_processors(capability: str) -> None:
    """The best one's is this very run."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", SELECTION)
    done = run(capability, "-c", PYTEST, *options, *SUITE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == capability


@pytest.mark.skipif(sys.platform != "linux", reason="not run: it guards memory as Linux does")
@pytest.mark.parametrize("capability", HERE)
def test_nothing_is_read_beyond_an_argument(capability: str) -> None:
    done = run(capability, "guarded.py")
    assert done.returncode == 0, done.stderr


def test_the_best_is_in_use_unless_another_is_asked_for() -> None:
    best, has = jit.kernel_set(), _processor.read().instruction_sets
    if best == "avx512" and "avx512_bf16" in has:
        best = "avx512_bf16"
    if platform.machine() == "aarch64" and "bf16" in has:
        best = "neon_bf16"
    if best == "avx512_bf16" and torch.cpu._init_amx():
        best = "amx"
    assert os.environ.get("LLTM_CPU_CAPABILITY", best) == BEST


@pytest.mark.skipif(BEST != "amx", reason="not run: there are no tiles on this processor")
def test_a_refused_permission_leaves_the_best_without_tiles() -> None:
    """Linux refuses the tiles' state to a process with a signal stack too small for it."""
    script = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(8192)
small = Stack(ctypes.addressof(memory), 0, len(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.sigaltstack(ctypes.byref(small), None) == 0
import torch, lltm
print(torch.ops.lltm.cpu_capability())
"""
    environment = {k: v for k, v in os.environ.items() if k != "LLTM_CPU_CAPABILITY"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, HERE[-2]), done.stderr


def test_an_unknown_capability_is_refused() -> None:
    done = run("avx3", "-c", "import torch, lltm; torch.ops.lltm.cpu_capability()")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"LLTM_CPU_CAPABILITY must be {', '.join(reversed(HERE))} in this build" in last
    assert last.endswith("got avx3")
