"""A training step of the cell and the sequence, each backend beside eager PyTorch in the same run.

Run with ``pytest tests/benchmarks/bench_forward_backward.py --benchmark-json FILE``. The build
matrix reads ``extra_info`` and reports ratios of medians; a time by itself means nothing elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import pytest
import torch
from cases import BENCHMARK_CASES, Case
from torch import Tensor

import lltm

if TYPE_CHECKING:
    from collections.abc import Callable

BACKENDS = [backend.name for backend in lltm.backends.available()]


def step(case: Case, backend: str) -> Callable[[], tuple[Tensor, ...]]:
    """A forward and a backward pass over fresh leaves of the case."""
    arguments = case.arguments(torch.float32).leaves()
    # The reference through its own functions is what a user without the extension writes.
    function = case.reference if backend == "reference" else case.function
    options = {} if backend == "reference" else {"backend": backend}

    seeds = cases.cotangents(function(*arguments, **options))

    def run() -> tuple[Tensor, ...]:
        outputs = function(*arguments, **options)
        return torch.autograd.grad(outputs, arguments.tensors(), seeds)

    return run


@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.benchmark(min_rounds=5, max_time=0.4, warmup=True, warmup_iterations=2)
def test_training_step(benchmark: pytest.FixtureRequest, case: Case, backend: str) -> None:
    run = step(case, backend)
    for actual, expected in zip(run(), step(case, "reference")(), strict=True):
        cases.assert_close(actual, expected, f"{case.name} on {backend}")
    benchmark.extra_info.update(case=case.name, backend=backend, dtype="float32")
    benchmark(run)
