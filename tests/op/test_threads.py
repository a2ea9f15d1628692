"""The work is shared by as many threads as `torch.set_num_threads` allows, and by no more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cases import Case

from lltm import _library

CASES = [Case("cell", 64, 512, 512), Case("sequence", 64, 256, 256, steps=4)]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def share_of_others(case: Case) -> float:
    """CPU time of the process's other threads, in times of this one's."""
    arguments = case.arguments()
    with torch.no_grad():
        case.function(*arguments, backend="fused")
        mine, everyone = time.thread_time(), time.process_time()
        while time.thread_time() - mine < 0.1:
            case.function(*arguments, backend="fused")
        mine, everyone = time.thread_time() - mine, time.process_time() - everyone
    return (everyone - mine) / mine


@pytest.mark.skipif(
    _library.build().binding == "native" and _library.release(torch.__version__) < (2, 10),
    reason="not run: torch 2.9 exports no parallel_for, and its template needs torch's own OpenMP",
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_a_second_thread_works(case: Case) -> None:
    torch.set_num_threads(2)
    assert share_of_others(case) > 0.3  # of the about 1 that is due


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_one_thread_works_alone(case: Case) -> None:
    torch.set_num_threads(1)
    assert share_of_others(case) < 0.1


KEEP = """
import threading
import torch, lltm

torch.set_num_threads(1)
module, input = lltm.LLTMSequence(64, 128), torch.randn(64, 96, 64)


def resident():
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def work(ended, leave):
    with torch.no_grad():
        module(input)
    ended.set()
    leave.wait()


def start(leave):
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended, leave))
    thread.start()
    ended.wait()
    return thread


leave = threading.Event()
threads = [start(leave)]
before = resident()
threads += [start(leave) for _ in range(24)]
print(resident() - before)
leave.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.subprocess
@pytest.mark.skipif(sys.platform != "linux", reason="not run: it reads /proc and needs glibc")
def test_idle_threads_keep_a_bounded_amount_of_memory_together(tmp_path: Path) -> None:
    """9 MiB each without a bound, of 32 that one may keep; the bound is on all of them."""
    done = subprocess.run(
        [sys.executable, "-c", KEEP],
        # glibc gives every large block back at once, so that what is resident is what is kept.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64 + 24 * 1  # a thread's stack and torch's own state are the rest
