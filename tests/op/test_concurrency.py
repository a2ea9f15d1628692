"""Threads that call the ops at the same time get what each would get alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import cases
import pytest
import torch
from cases import SEQUENCE_CASES, Case

import lltm

if TYPE_CHECKING:
    from torch import Tensor

THREADS = 4
ROUNDS = 3
CASES = [case for case in SEQUENCE_CASES if case.steps and case.steps < 10 and case.batch]


def results(case: Case) -> list[Tensor]:
    """Outputs and gradients; every thread makes its own tensors."""
    arguments = case.arguments().leaves()
    outputs = case.function(*arguments, backend="fused")
    return [*outputs, *cases.gradients(outputs, arguments)]


def assert_equal(actual: list[Tensor], expected: list[Tensor], what: str) -> None:
    for mine, other in zip(actual, expected, strict=True):
        assert torch.equal(torch.nan_to_num(mine), torch.nan_to_num(other)), what


def test_training_steps_of_many_threads() -> None:
    expected = [results(case) for case in CASES]
    start = Barrier(THREADS)

    def work(first: int) -> None:
        start.wait()
        for at in range(ROUNDS * len(CASES)):
            index = (first + at) % len(CASES)
            assert_equal(results(CASES[index]), expected[index], CASES[index].name)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=cases.identify)
def test_streams_of_many_threads(dtype: torch.dtype) -> None:
    """One stream for each, of the same parameters."""
    module = lltm.LLTMSequence(8, 24, num_layers=2, dtype=dtype)
    inputs = torch.randn(50, 3, 8).to(dtype)
    start = Barrier(THREADS)

    def work(_: int) -> Tensor:
        stream = module.stream(3)
        start.wait()
        return torch.stack([stream.step(x).clone() for x in inputs])

    with ThreadPoolExecutor(THREADS) as pool:
        first, *others = pool.map(work, range(THREADS))
    assert all(torch.equal(first, other) for other in others)


def test_a_module_that_threads_share() -> None:
    module, inputs = lltm.LLTMSequence(8, 24), torch.randn(THREADS, 6, 3, 8)
    start = Barrier(THREADS)

    def work(index: int) -> list[Tensor]:
        start.wait()
        output, _ = module(inputs[index])
        return list(torch.autograd.grad(output.sum(), list(module.parameters())))

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, range(THREADS)))
    start = Barrier(1)
    for index, gradients in enumerate(found):
        assert_equal(gradients, work(index), "gradient of a shared module")
