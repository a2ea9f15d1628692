"""What is timed: the sizes, the dtypes, the thread counts and the four kinds of work.

A :class:`Row` is one of their combinations, and all competitors of a row are timed in one race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from cases import BENCHMARK_CASES, Case, cotangents
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
THREADS = (1, 2)
NEEDS = {
    "cell": (False, True, True, True, True),
    "sequence": (True, True, True, False, False),
}
"""Whose gradients are asked for, in the op's order: a cell is a step of an unrolled network, whose
input is data; a sequence is a layer of a network, whose initial state is a constant."""

Outputs = tuple[Tensor, ...]
Call = Callable[[], object]


@dataclass(frozen=True)
class Problem:
    """One competitor's share of a row.

    Attributes:
        call: computes the outputs.
        leaves: the tensors whose gradients are asked for.
    """

    call: Callable[[], Outputs]
    leaves: list[Tensor]

    def gradients(self) -> tuple[Tensor, ...]:
        """Of :func:`cases.loss`, whose gradient in the outputs is fixed."""
        outputs = self.call()
        return torch.autograd.grad(outputs, self.leaves, cotangents(outputs))


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Attributes:
        name: as in the tables.
        grad: whether autograd records.
        calls: ``(problem, n)`` to ``n`` calls ready to be timed; what they need is made before.
    """

    name: str
    grad: bool
    calls: Callable[[Problem, int], list[Call]]


def _repeat(problem: Problem, count: int) -> list[Call]:
    return [problem.call] * count


def _backward(problem: Problem, count: int) -> list[Call]:
    """A fresh graph for each call: a second walk over one graph would find its tensors cached."""
    graphs = [problem.call() for _ in range(count)]
    grads = cotangents(graphs[0])
    return [
        lambda graph=graph: torch.autograd.grad(graph, problem.leaves, grads) for graph in graphs
    ]


def _training_step(problem: Problem, count: int) -> list[Call]:
    grads = cotangents(problem.call())
    return [lambda: torch.autograd.grad(problem.call(), problem.leaves, grads)] * count


FORWARD = Work("forward", grad=True, calls=_repeat)
BACKWARD = Work("backward", grad=True, calls=_backward)
TRAINING_STEP = Work("forward+backward", grad=True, calls=_training_step)
INFERENCE = Work("inference", grad=False, calls=_repeat)
WORKS = (FORWARD, BACKWARD, TRAINING_STEP, INFERENCE)


@dataclass(frozen=True)
class Row:
    """One line of the report: every competitor on one problem."""

    case: Case
    dtype: torch.dtype
    threads: int
    work: Work

    @property
    def name(self) -> str:
        """Such as ``cell-16x32x128-float32-1-forward``."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.case.op}-{self.case.name}-{dtype}-{self.threads}-{self.work.name}"


def rows() -> Iterator[Row]:
    """Every row there is; rows of one case, dtype and thread count follow each other."""
    for threads in THREADS:
        for dtype in DTYPES:
            for case in BENCHMARK_CASES:
                for work in WORKS:
                    yield Row(case, dtype, threads, work)
