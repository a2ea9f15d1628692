"""Blocks and thresholds follow the second-level cache: ``LLTM_CPU_L2_BYTES`` pretends another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import cases, torch
from cases import Case

CELLS = Case("16x32x128", 16, 32, 128), Case("64x256x384", 64, 256, 384)
SEQUENCES = Case("9x16x130x96", 16, 130, 96, steps=9), Case("2x700x48x40", 700, 48, 40, steps=2)


def results(case, function, dtype):
    made = case.arguments(dtype).leaves((True,) * 5)
    outputs = function(*made)
    leaves = [tensor for tensor in made.tensors() if tensor.requires_grad]
    return [*outputs, *torch.autograd.grad(outputs, leaves, cases.cotangents(outputs))]


for case in (*CELLS, *SEQUENCES):
    for dtype in (torch.float32, torch.float64):
        torch.set_num_threads(1)
        alone = results(case, case.function, dtype)
        for ours, expected in zip(alone, results(case, case.reference, dtype), strict=True):
            cases.assert_close(ours, expected, case.name)
        torch.set_num_threads(2)
        for one, two in zip(alone, results(case, case.function, dtype), strict=True):
            assert torch.equal(one, two), case.name
"""
"""Of sizes on both sides of every threshold: values within the tolerance table, and the same bits
from one thread and two."""

pytestmark = pytest.mark.subprocess


def run(size: str, script: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(here)!r})\n{script}"],
        env={**os.environ, "LLTM_CPU_L2_BYTES": size},
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("size", ["1", "262144", "16777216"])
def test_any_cache_gives_right_values_whatever_the_threads(size: str) -> None:
    done = run(size, SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("size", ["0", "-1", "2MB", "9" * 30])
@pytest.mark.parametrize("case", ["64x16x32", "1x2x4"])
def test_a_size_that_is_none_is_refused(size: str, case: str) -> None:
    """By the first call, whether or not it is so large that the size matters."""
    case = f"Case({case!r}, {case.replace('x', ', ')})"
    done = run(size, f"from cases import Case\ncase = {case}\ncase.function(*case.arguments())")
    assert done.returncode == 1
    expected = f"LLTM_CPU_L2_BYTES must be a number of bytes above 0, got {size}"
    assert expected in done.stderr
