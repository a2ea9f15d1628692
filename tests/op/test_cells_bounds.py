"""Each cell's errors have absolute bounds, on every processor and in every instruction set."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch
from cases import DTYPES, identify
from cells_bounds import CellBounds, compiled
from cells_cases import CELLS
from test_bounds import share
from torch import Tensor

from lltm import cells
from lltm._compile import unavailable_reason
from lltm.cells._contract import Arguments
from lltm.cells._prove import Problem, of_kernels, of_reference, with_tensors

pytestmark = [pytest.mark.subprocess, pytest.mark.parametrize("name", CELLS)]
# T, B, F, S: one step; more terms of each sum than a block has. Few steps, for the bounds grow with
# them beyond what is met: after 12 the sLSTM's normaliser may be 0 in bfloat16 by its bound.
SIZES = ((1, 5, 7, 20), (2, 90, 9, 12), (3, 17, 140, 72), (6, 9, 6, 8))
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=identify)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if reason := unavailable_reason():
        pytest.skip(f"not run: {reason}")
    assert all(cells.prepare(cell) for cell in CELLS.values())
    return compiled(CELLS.values(), tmp_path_factory.mktemp("bounds"))


def bounds(name: str, library: ctypes.CDLL, arguments: Arguments) -> CellBounds:
    return CellBounds(CELLS[name], library, list(CELLS).index(name), arguments)


def given(name: str, dtype: torch.dtype, sizes: tuple[int, ...], reset: bool) -> Arguments:
    arguments = Problem(CELLS[name], *sizes, dtype).arguments(reset)
    scalars = tuple(float(torch.tensor(scalar)) for scalar in arguments.scalars)
    return replace(arguments, scalars=scalars)  # as float32 has them


def gradients(outputs: tuple[Tensor, ...], arguments: Arguments, seeds: list[Tensor]):
    leaves = [each for each in arguments.tensors() if each is not None]
    wide = [seed.to(output.dtype) for seed, output in zip(seeds, outputs, strict=True)]
    return torch.autograd.grad(outputs, leaves, wide)


def leaves_of(arguments: Arguments, dtype: torch.dtype) -> Arguments:
    tensors = [each.to(dtype) for each in arguments.tensors() if each is not None]
    return with_tensors(arguments, [each.detach().requires_grad_() for each in tensors])


@pytest.mark.parametrize("reset", [False, True], ids=["", "resets"])
@EACH_DTYPE
def test_errors_are_within_their_bounds(
    name: str, dtype: torch.dtype, reset: bool, library: ctypes.CDLL
) -> None:
    for sizes in SIZES:
        arguments = given(name, dtype, sizes, reset)
        of = bounds(name, library, arguments)
        narrow, wide = leaves_of(arguments, dtype), leaves_of(arguments, torch.float64)
        found = of_kernels(of.cell)(narrow)
        right = of_reference(of.cell)(wide)
        seeds = [torch.linspace(-1, 1, each.numel()).view_as(each).to(dtype) for each in found]
        allowed, saved = of.forward()
        allowed += of.backward(saved, seeds).values()
        pairs = zip(
            [*found, *gradients(found, narrow, seeds)],
            [*right, *gradients(right, wide, seeds)],
            allowed if reset else allowed[:-1],
            strict=True,
        )
        for index, (actual, expected, bounded) in enumerate(pairs):
            value = bounded.value.view_as(expected)
            torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-9)
            assert bounded.error.isfinite().all()
            assert share(actual.detach(), bounded) <= 1, f"{sizes}: result {index}"


@EACH_DTYPE
def test_bounds_notice_one_term_that_is_missing(
    name: str, dtype: torch.dtype, library: ctypes.CDLL
) -> None:
    """Bounds that nothing can exceed would prove nothing."""
    arguments = given(name, dtype, (1, 4, 9, 8), reset=False)
    allowed, _ = bounds(name, library, arguments).forward()
    without = arguments.input.clone()
    without[..., -1] = 0
    found = of_kernels(CELLS[name])(replace(arguments, input=without))
    assert all(share(a, b) > 1 for a, b in zip(found, allowed, strict=True))
