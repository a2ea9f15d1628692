"""Each cell's errors have absolute bounds, on every processor and in every instruction set."""

from __future__ import annotations

import ctypes

import pytest
import torch
from cases import DTYPES, identify
from cells_bounds import CellBounds, compiled
from cells_cases import CELLS, EACH_CELL
from test_bounds import share

from lltm.cells._contract import Arguments
from lltm.cells._problem import Problem, of_kernels, of_reference, results, with_tensors

pytestmark = [pytest.mark.subprocess, EACH_CELL]
# T, B, F, S: one step; more terms of each sum than a block has. Few steps, for the bounds grow with
# them beyond what is met: after 12 the sLSTM's normaliser may be 0 in bfloat16 by its bound.
SIZES = ((1, 5, 7, 20), (2, 90, 9, 12), (3, 17, 140, 72), (6, 9, 6, 8))
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=identify)


@pytest.fixture(scope="module")
def library(compiled_cells: None, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(CELLS.values(), tmp_path_factory.mktemp("bounds"))


def bounds(name: str, library: ctypes.CDLL, arguments: Arguments) -> CellBounds:
    return CellBounds(CELLS[name], library, list(CELLS).index(name), arguments)


def given(name: str, dtype: torch.dtype, sizes: tuple[int, ...], reset: bool) -> Arguments:
    arguments = Problem(CELLS[name], *sizes, dtype).arguments(reset)
    scalars = tuple(float(torch.tensor(scalar)) for scalar in arguments.scalars)
    return arguments._replace(scalars=scalars)  # as float32 has them


def over_the_range(name: str, dtype: torch.dtype) -> Arguments:
    """Pre-activations from tiny to where sigmoid and tanh are flat and exp leaves float16, exactly:
    each is one of the inputs, and h takes no part."""
    cell = CELLS[name]
    count = cell.gates * cell.heads
    arguments = given(name, dtype, (1, 300, count, cell.heads), reset=False)
    generator = torch.Generator().manual_seed(0)
    sign = torch.randn(arguments.input.shape, generator=generator).sign()
    powers = 12 * torch.rand(arguments.input.shape, generator=generator) - 7
    assert arguments.bias is not None
    return arguments._replace(
        input=(sign * powers.exp2()).to(dtype),
        weights=torch.cat([torch.zeros(count, 1), torch.eye(count)], 1).to(dtype),
        bias=torch.zeros_like(arguments.bias),
    )


def assert_within(of: CellBounds) -> None:
    """Outputs and gradients; what they are within bounds of is the step in float64."""
    dtype = of.arguments.input.dtype
    found, saved = of.forward()
    weights = [
        torch.linspace(-1, 1, each.value.numel()).view_as(each.value).to(dtype) for each in found
    ]
    allowed = [*found, *of.backward(saved, weights).values()]
    wide = [each.double() for each in of.arguments.tensors() if each is not None]
    actual = results(of_kernels(of.cell), of.arguments, weights)
    exact = results(of_reference(of.cell), with_tensors(of.arguments, wide), weights)
    allowed = allowed[: len(actual)]  # without resets there is no reset_state
    for index, (result, right, bounded) in enumerate(zip(actual, exact, allowed, strict=True)):
        torch.testing.assert_close(bounded.value.view_as(right), right, rtol=1e-9, atol=1e-9)
        assert bounded.error.isfinite().all()
        assert share(result, bounded) <= 1, f"result {index}"


@pytest.mark.parametrize("reset", [False, True], ids=["", "resets"])
@EACH_DTYPE
def test_errors_are_within_their_bounds(
    name: str, dtype: torch.dtype, reset: bool, library: ctypes.CDLL
) -> None:
    for sizes in SIZES:
        assert_within(bounds(name, library, given(name, dtype, sizes, reset)))


@EACH_DTYPE
def test_errors_are_within_their_bounds_over_the_range(
    name: str, dtype: torch.dtype, library: ctypes.CDLL
) -> None:
    assert_within(bounds(name, library, over_the_range(name, dtype)))


@EACH_DTYPE
def test_bounds_notice_one_term_that_is_missing(
    name: str, dtype: torch.dtype, library: ctypes.CDLL
) -> None:
    """Bounds that nothing can exceed would prove nothing."""
    arguments = given(name, dtype, (1, 4, 9, 8), reset=False)
    allowed, _ = bounds(name, library, arguments).forward()
    without = arguments.input.clone()
    without[..., -1] = 0
    found = of_kernels(CELLS[name])(arguments._replace(input=without))
    assert all(share(a, b) > 1 for a, b in zip(found, allowed, strict=True))
