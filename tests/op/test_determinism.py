"""The same call gives the same bits, on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import cases
import pytest
import torch
from cases import Arguments, Case
from torch import Tensor

# Large enough for every parallel loop to be split.
LARGE = {
    "cell": Case("threads", 257, 40, 130),
    "sequence": Case("threads", 65, 20, 130, steps=9),
}
OPS = tuple(LARGE)
SPLIT = (
    *LARGE.values(),
    Case("single row", 1, 100, 700),
    Case("few terms", 6, 700, 450),
    Case("few rows", 13, 100, 300),
    Case("many rows", 300, 129, 65),
    Case("single row", 1, 100, 300, steps=5),
    Case("few rows", 13, 300, 150, steps=12),
)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def _everything(case: Case, arguments: Arguments, backend: str, threads: int) -> list[Tensor]:
    """Outputs and gradients."""
    torch.set_num_threads(threads)
    leaves = arguments.leaves()
    outputs = case.function(*leaves, backend=backend)
    return [*outputs, *cases.gradients(outputs, leaves)]


def _without_matrices(case: Case) -> Arguments:
    """Weights of zero: z is the bias exactly, however BLAS adds; only the kernels compute."""
    arguments = case.arguments()
    return arguments._replace(weights=torch.zeros_like(arguments.weights))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", OPS)
def test_two_runs_give_the_same_bits(op: str, threads: int, compiled_backend: str) -> None:
    arguments = LARGE[op].arguments()
    first = _everything(LARGE[op], arguments, compiled_backend, threads)
    for _ in range(3):
        for a, e in zip(
            _everything(LARGE[op], arguments, compiled_backend, threads), first, strict=True
        ):
            assert torch.equal(a, e)


@pytest.mark.parametrize("threads", [2, 3, 5, 8])
@pytest.mark.parametrize("op", OPS)
def test_pointwise_part_for_any_number_of_threads(
    op: str, threads: int, compiled_backend: str
) -> None:
    """Outputs and the states' gradients are bitwise those of one thread."""
    case = LARGE[op]
    arguments = _without_matrices(case)

    def pointwise(count: int) -> list[Tensor]:
        torch.set_num_threads(count)
        leaves = arguments.leaves((False, False, False, False, True))
        outputs = case.function(*leaves, backend=compiled_backend)
        return [*outputs, *cases.gradients(outputs, leaves)]

    for a, e in zip(pointwise(threads), pointwise(1), strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("op", OPS)
def test_one_and_two_threads_agree(op: str, compiled_backend: str) -> None:
    arguments = LARGE[op].arguments()
    two = _everything(LARGE[op], arguments, compiled_backend, 2)
    for a, e in zip(two, _everything(LARGE[op], arguments, compiled_backend, 1), strict=True):
        cases.assert_close(a, e, "one and two threads")


@pytest.mark.parametrize("op", OPS)
def test_deterministic_algorithms_are_all_there_is(op: str, compiled_backend: str) -> None:
    """torch.use_deterministic_algorithms finds nothing to refuse, and fills what is allocated
    with nan: whatever a kernel left unwritten would show."""
    arguments = LARGE[op].arguments()
    expected = _everything(LARGE[op], arguments, compiled_backend, 1)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        actual = _everything(LARGE[op], arguments, compiled_backend, 1)
    finally:
        torch.use_deterministic_algorithms(False)
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("threads", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=cases.identify)
@pytest.mark.parametrize("case", SPLIT, ids=cases.identify)
def test_any_number_of_threads_gives_the_same_bits(
    case: Case, dtype: torch.dtype, threads: int
) -> None:
    """The fused kernels' sums do not depend on where threads divide the work."""
    arguments = case.arguments(dtype)
    alone = _everything(case, arguments, "fused", 1)
    for a, e in zip(_everything(case, arguments, "fused", threads), alone, strict=True):
        assert torch.equal(a, e)
