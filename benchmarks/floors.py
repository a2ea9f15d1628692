"""What no implementation can pass, measured in the race itself.

``blas``: the matrix products the maths cannot avoid when each step calls BLAS, into buffers made
before, and nothing else. A kernel may still pass it, by packing the weights once for all steps.

``fma``: the same products at the machine's peak rate of fused multiply-adds. The rate is measured
by a few lines of C++ compiled for this very processor (``fma.cpp``): no library call reaches the
peak at every size, and a data sheet knows no turbo, no neighbour and no virtual machine.

On a GPU the peak rate is that of a large square product in the row's precision (``flop``), and
``byte`` is the time to read every argument and write every result once at the rate of a large copy
within the device. A problem that stays in the second-level cache from call to call may pass it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import compiled
from benchmarks.racing import Prepare
from benchmarks.workloads import BACKWARD, FORWARD, INFERENCE, NEEDS, TRAINING_STEP, Row

BLAS, FMA, FLOP, BYTE = "blas floor", "fma floor", "flop floor", "byte floor"
NAMES = {"cpu": (BLAS, FMA), "cuda": (BLAS, FLOP, BYTE)}
"""By device."""
SQUARE = 8192
"""Side of the product that shows a GPU's peak rate."""
COPY_BYTES = 2**28
FMA_FLOPS = 1e8
"""Per thread and call: long beside the start of a thread, short beside a round."""
SOURCE = Path(__file__).with_name("fma.cpp")

Product = tuple[int, tuple[int, int, int]]
"""How many times, and (m, k, n)."""


def products(row: Row) -> Iterator[Product]:
    """The matrix products of a row."""
    if row.work in (FORWARD, TRAINING_STEP, INFERENCE):
        yield from _forward(row)
    if row.work in (BACKWARD, TRAINING_STEP):
        yield from _backward(row)


def _forward(row: Row) -> Iterator[Product]:
    case = row.case
    if case.steps is None:
        yield 1, (case.batch, case.state + case.features, 3 * case.state)
    else:
        yield 1, (case.steps * case.batch, case.features, 3 * case.state)
        yield case.steps, (case.batch, case.state, 3 * case.state)


def _backward(row: Row) -> Iterator[Product]:
    case = row.case
    needs_input, needs_weights, _, needs_h, _ = NEEDS[case.op]
    steps = case.steps or 1
    # The first step's gradient in its hidden state is wanted only where h0 asks.
    state_steps = steps if needs_h else steps - 1
    yield state_steps, (case.batch, 3 * case.state, case.state)
    if needs_weights:
        yield 1, (3 * case.state, steps * case.batch, case.state + case.features)
    if needs_input:
        yield 1, (steps * case.batch, 3 * case.state, case.features)


def flops_of(some: Iterable[Product]) -> int:
    """Floating-point operations of products, a multiplication and an addition being two."""
    return sum(2 * count * m * k * n for count, (m, k, n) in some)


def flops(row: Row) -> int:
    """Floating-point operations of the products of a row."""
    return flops_of(products(row))


def blas_of(some: Iterable[Product], dtype: torch.dtype, device: str) -> Callable[[], None]:
    """Products by :func:`torch.mm`, one call each, operands laid out as users hold them."""
    calls = [
        functools.partial(torch.mm, left, right, out=out)
        for count, shape in some
        for left, right, out in [_operands(shape, dtype, device)]
        for _ in range(count)
    ]

    def run() -> None:
        for call in calls:
            call()

    return run


def blas(row: Row) -> Prepare:
    """The products of a row."""
    run = blas_of(products(row), row.dtype, row.device)
    return lambda count: [run] * count


def _operands(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    m, k, n = shape
    left, right = (torch.randn(rows, k, device=device).to(dtype) for rows in (m, n))
    return left, right.t(), torch.empty(m, n, dtype=dtype, device=device)


def fma(dtype: torch.dtype, threads: int) -> Callable[[float], float]:
    """Runs that many multiplications and additions or a few more on each thread; says how many."""
    library = compiled.load("fma", [SOURCE], ["-O2", "-march=native"], [SOURCE])
    function = getattr(library, f"fma_{str(dtype).removeprefix('torch.')}")
    function.restype = ctypes.c_double
    function.argtypes = (ctypes.c_double, ctypes.c_int)
    return lambda wanted: float(function(wanted, threads))


def fma_rate(row: Row) -> tuple[Prepare, float]:
    """What to race, and by what its seconds are multiplied to be those of the row's products."""
    run = fma(row.dtype, row.threads)
    done = run(FMA_FLOPS)
    return (lambda count: [lambda: run(FMA_FLOPS)] * count), flops(row) / done


def moved_bytes(row: Row) -> int:
    """Bytes of the row's arguments and results: the least that its work reads and writes.

    A backward pass reads the arguments and the outputs' gradients and writes the gradients asked
    for; what it reads of the forward pass could be computed again.
    """
    case = row.case
    steps, width = case.steps or 1, case.state + case.features
    states = case.batch * case.state
    sizes = {
        "input": steps * case.batch * case.features,
        "weights": 3 * case.state * width,
        "bias": 0 if case.bias == "absent" else 3 * case.state,
        "h": states,
        "c": states,
    }
    outputs = 2 * states if case.steps is None else (steps + 2) * states
    wanted = zip(sizes.values(), NEEDS[case.op], strict=True)
    elements = sum(sizes.values())
    if row.work in (FORWARD, TRAINING_STEP, INFERENCE):
        elements += outputs
    if row.work in (BACKWARD, TRAINING_STEP):
        elements += outputs + sum(size for size, needed in wanted if needed)
    return elements * row.dtype.itemsize


@functools.lru_cache(maxsize=1)
def square_operands(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Two factors and a product, SQUARE x SQUARE each, made once."""
    return _operands((SQUARE, SQUARE, SQUARE), dtype, device)


def flop_rate(row: Row) -> tuple[Prepare, float]:
    """A large product to race, and by what its seconds become those of the row's products."""
    left, right, out = square_operands(row.dtype, row.device)
    factor = flops(row) / (2 * SQUARE**3)
    return (lambda count: [functools.partial(torch.mm, left, right, out=out)] * count), factor


@functools.lru_cache(maxsize=1)
def copy_operands(device: str) -> tuple[Tensor, Tensor]:
    """Source and target of a copy, COPY_BYTES each, made once."""
    return tuple(torch.empty(COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))


def byte_rate(row: Row) -> tuple[Prepare, float]:
    """A large copy to race, and by what its seconds become those of the row's bytes."""
    to, from_ = copy_operands(row.device)
    factor = moved_bytes(row) / (2 * COPY_BYTES)
    return (lambda count: [functools.partial(to.copy_, from_)] * count), factor


def of(row: Row) -> dict[str, tuple[Prepare, float]]:
    """The floors of a row by name: what to race, and by what its seconds are multiplied."""
    found = {BLAS: (blas(row), 1.0)}
    if row.device == "cuda":
        return {**found, FLOP: flop_rate(row), BYTE: byte_rate(row)}
    return {**found, FMA: fma_rate(row)}
