"""The work is shared by as many threads as `torch.set_num_threads` allows, and by no more."""

from __future__ import annotations

import time
from collections.abc import Iterator

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
    reason="torch 2.9 exports no parallel_for, and its template needs torch's own OpenMP",
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_a_second_thread_works(case: Case) -> None:
    torch.set_num_threads(2)
    assert share_of_others(case) > 0.3  # of the about 1 that is due


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_one_thread_works_alone(case: Case) -> None:
    torch.set_num_threads(1)
    assert share_of_others(case) < 0.1
