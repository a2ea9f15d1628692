"""What is timed: the sizes, the dtypes, the thread counts and the four kinds of work.

A :class:`Row` is one of their combinations, and all competitors of a row are timed in one race.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import cases
import torch
from cases import BENCHMARK_CASES, Case, sized
from torch import Tensor

from benchmarks import gpu_cases

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
THREADS = (1, 2)
NEEDS = {
    "cell": (False, True, True, True, True),
    "sequence": (True, True, True, False, False),
}
"""Whose gradients are asked for, in the op's order: a cell is a step of an unrolled network, whose
input is data; a sequence is a layer of a network, whose initial state is a constant."""

Outputs = tuple[Tensor, ...]
Call = Callable[[], object]


Like = tuple[torch.Size, torch.dtype, torch.device]


# Those of 512 steps of 64 x 1024 take seconds, and each competitor needs them a dozen times.
@functools.lru_cache(maxsize=1)
def _cotangents(like: tuple[Like, ...]) -> Outputs:
    return cases.cotangents(
        tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in like)
    )


def cotangents(outputs: Iterable[Tensor]) -> Outputs:
    """Those of :func:`cases.cotangents`, kept for the outputs of one row."""
    return _cotangents(tuple((each.shape, each.dtype, each.device) for each in outputs))


@dataclass(frozen=True)
class Problem:
    """One competitor's share of a row.

    Attributes:
        call: computes the outputs.
        arguments: the tensors it computes them from.
        leaves: those of them whose gradients are asked for.
        allocates: whether a call takes the memory that it works in; a CUDA graph's was taken when
            it was captured.
    """

    call: Callable[[], Outputs]
    arguments: list[Tensor]
    leaves: list[Tensor]
    allocates: bool = True

    def gradients(self) -> tuple[Tensor, ...]:
        """Of :func:`cases.loss`, whose gradient in the outputs is fixed."""
        outputs = self.call()
        return torch.autograd.grad(outputs, self.leaves, cotangents(outputs))

    def results(self, *, grad: bool) -> list[Tensor]:
        """The outputs, and the gradients where they are wanted."""
        # Clones, because a replayed CUDA graph overwrites the outputs of the call before.
        outputs = [output.detach().clone() for output in self.call()]
        return [*outputs, *(self.gradients() if grad else ())]

    def backward(self, count: int) -> list[Call]:
        """A fresh graph for each call: a second walk over one would find its tensors cached."""
        graphs = [self.call() for _ in range(count)]
        grads = cotangents(graphs[0])
        return [
            lambda graph=graph: torch.autograd.grad(graph, self.leaves, grads) for graph in graphs
        ]

    def training_step(self) -> Call:
        """Forward and backward, ready to be timed any number of times."""
        grads = cotangents(self.call())
        return lambda: torch.autograd.grad(self.call(), self.leaves, grads)


@dataclass(frozen=True)
class Foreign:
    """One competitor's share of a row outside torch's autograd; its memory is not weighed.

    Attributes:
        call: computes the outputs, and waits for them.
        tensors: the outputs as tensors, and the gradients, in the order of :data:`NEEDS`.
        backward_call: computes the gradients from what a forward pass left, and waits for them.
        training_call: both passes.
        compile_seconds: until the first result of what the row times, beyond that of a later one.
    """

    call: Call
    tensors: Callable[[], list[Tensor]]
    backward_call: Call | None = None
    training_call: Call | None = None
    compile_seconds: float | None = None

    def results(self, *, grad: bool) -> list[Tensor]:
        """The outputs, and the gradients where the row has any."""
        del grad  # `tensors` knows
        return self.tensors()

    def backward(self, count: int) -> list[Call]:
        """Nothing is consumed: one forward pass serves all."""
        assert self.backward_call is not None
        return [self.backward_call] * count

    def training_step(self) -> Call:
        """Forward and backward."""
        assert self.training_call is not None
        return self.training_call


Share = Problem | Foreign
"""What a competitor makes of a row."""


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
    calls: Callable[[Share, int], list[Call]]


def _repeat(problem: Share, count: int) -> list[Call]:
    return [problem.call] * count


def _backward(problem: Share, count: int) -> list[Call]:
    return problem.backward(count)


def _training_step(problem: Share, count: int) -> list[Call]:
    return [problem.training_step()] * count


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
    device: str = "cpu"
    tf32: bool = False  # whether float32 products may use the tensor cores

    def fields(self) -> dict[str, str]:
        """A name that no other row has."""
        return {
            "op": self.case.op,
            "case": self.case.name,
            "dtype": "tf32" if self.tf32 else str(self.dtype).removeprefix("torch."),
            "threads": str(self.threads),
            "work": self.work.name,
        }

    @property
    def name(self) -> str:
        """Such as ``cell-16x32x128-float32-1-forward``."""
        return "-".join(self.fields().values())


SMOKE_CASES = ("16x32x128", "64x16x32x128", "64x1x256x512")


def full() -> Iterator[Row]:
    """Every row there is; rows of one case, dtype and thread count follow each other."""
    for threads, dtype, case, work in itertools.product(THREADS, DTYPES, BENCHMARK_CASES, WORKS):
        yield Row(case, dtype, threads, work)


def quick() -> Iterator[Row]:
    """What one thread does in float32."""
    return (row for row in full() if row.threads == 1 and row.dtype == torch.float32)


def smoke() -> Iterator[Row]:
    """A training step of three cases: what the build matrix can afford in each of its rows."""
    return (row for row in quick() if row.case.name in SMOKE_CASES and row.work == TRAINING_STEP)


CUDA_CASES: tuple[Case, ...] = tuple(
    sized(*map(int, name.split("x")))
    for name in itertools.chain.from_iterable(gpu_cases.BY_OP.values())
)
CUDA_PRECISIONS = ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False))
"""Dtype, and whether it is TF32."""


def cuda() -> Iterator[Row]:
    """Every row on a GPU."""
    for (dtype, tf32), case, work in itertools.product(CUDA_PRECISIONS, CUDA_CASES, WORKS):
        yield Row(case, dtype, 1, work, "cuda", tf32)


SWEEP_STEPS = 4
SWEEP_BATCHES = (1, 3, 8, 16, 37, 64, 256)
SWEEP_SIZES = (
    *((16, 16), (17, 33), (32, 128), (96, 64), (128, 256), (255, 511), (512, 512)),
    *((1024, 128), (1024, 1024)),
)
"""F and S."""
SWEEP_DTYPES = (torch.float32, torch.bfloat16)


def sweep() -> Iterator[Row]:
    """Shapes that no table names, odd ones too: a step, and a sequence of few of them."""
    for dtype, steps, (features, state), batch in itertools.product(
        SWEEP_DTYPES, ((), (SWEEP_STEPS,)), SWEEP_SIZES, SWEEP_BATCHES
    ):
        case = sized(*steps, batch, features, state)
        for work in (TRAINING_STEP, INFERENCE):
            yield Row(case, dtype, 1, work)


SCOPES = {"smoke": smoke, "quick": quick, "full": full, "cuda": cuda, "sweep": sweep}
"""By name, which rows to run."""


class Selectable(Protocol):
    """A row, of whichever races."""

    def fields(self) -> dict[str, str]:
        """A name that no other row has."""
        ...


AnyRow = TypeVar("AnyRow", bound=Selectable)


def select(
    rows: Iterable[AnyRow], text: str | None, everything: Iterable[Selectable] = ()
) -> list[AnyRow]:
    """The rows with the fields named in ``KEY=VALUE,...``, such as ``op=cell,threads=1``.

    Args:
        rows: of the scope.
        text: what is selected; everything when None.
        everything: all rows there are, of whichever scope; those of this file unless given.

    Raises:
        ValueError: a key is unknown, or no row there is has the value.
    """
    chosen = list(rows)
    everything = [*everything] or [*full(), *cuda(), *sweep()]
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        known = list(dict.fromkeys(row.fields().get(key) for row in everything))
        if None in known:
            keys = ", ".join(everything[0].fields())
            raise ValueError(f"--select wants KEY=VALUE,... with KEY one of {keys}; got {part!r}")
        if value not in known:
            values = ", ".join(str(each) for each in known)
            raise ValueError(f"--select {key} must be one of {values}; got {value!r}")
        chosen = [row for row in chosen if row.fields()[key] == value]
    return chosen
