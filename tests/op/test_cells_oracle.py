"""How wrong each cell's kernels are: errors in ulp against float64, beside eager PyTorch's.

As for the LLTM in test_oracle.py, the distribution over all elements is compared, by its median
and 90th percentile: where a sum cancels, which order of adding suffers is chance.
"""

from __future__ import annotations

import cells_oracle
import cells_oracle_gradients
import oracle
import pytest
import torch
from cells_cases import CELLS, EACH_CELL
from test_oracle import quantiles
from torch import Tensor

from lltm.cells._contract import Arguments
from lltm.cells._problem import Problem, of_kernels, of_reference, results, with_tensors

pytestmark = [pytest.mark.subprocess, pytest.mark.usefixtures("compiled_cells")]

SIZES = ((1, 5, 7, 20), (9, 5, 7, 20), (6, 17, 33, 64), (8, 33, 5, 160), (4, 2, 33, 160))
DIGITS_SIZES = (4, 5, 20, 24)
DRAWS = 6
GRADIENT_DRAWS = 24  # of two, whose gradients were more wrong was chance
NAMES = ("output", "last", "input", "weights", "bias", "states", "reset_state")


def drawn_like(given: Arguments, seed: int) -> list[Tensor]:
    """Weights of the outputs. Evenly spaced ones, whose sums cancel, make the error of a bias's
    gradient one of the order that they are added in, the same in every draw."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (*given.input.shape[:2], given.states.shape[2]), given.states.shape
    return [torch.randn(shape, generator=generator).to(given.input.dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@EACH_CELL
def test_kernels_are_at_most_as_wrong_as_eager(name: str, dtype: torch.dtype) -> None:
    """Outputs and the gradient of every argument."""
    cell = CELLS[name]
    kernels, eager = of_kernels(cell), of_reference(cell)
    errors = {each: ([], []) for each in NAMES}
    for sizes in SIZES:
        for draw in range(DRAWS):
            given = Problem(cell, *sizes, dtype, seed=draw).arguments()
            wide = [each.double() for each in given.tensors() if each is not None]
            weights = drawn_like(given, draw)
            right = results(eager, with_tensors(given, wide), weights)
            answers = [results(of, given, weights) for of in (kernels, eager)]
            for each, *two, value in zip(NAMES, *answers, right, strict=True):
                for of, answer in zip(errors[each], two, strict=True):
                    of.append(oracle.error(answer, oracle.Exact(value)))
    for each, pair in errors.items():
        ours, theirs = map(quantiles, pair)
        assert (ours <= theirs).all(), f"{each}: {ours.tolist()}, eager {theirs.tolist()} ulp"


@EACH_CELL
def test_kernels_in_float64_are_at_most_as_wrong_as_eager(name: str) -> None:
    """Outputs, against the step on numbers of 50 digits."""
    kernels, eager = of_kernels(CELLS[name]), of_reference(CELLS[name])
    errors: tuple[list[Tensor], list[Tensor]] = ([], [])
    for draw in range(DRAWS):
        given = Problem(CELLS[name], *DIGITS_SIZES, seed=draw).arguments(reset=False)
        right = cells_oracle.sequence(CELLS[name], given)
        torch.testing.assert_close(tuple(each.value for each in right), eager(given))
        for found, function in zip(errors, (kernels, eager), strict=True):
            found.extend(map(oracle.error, function(given), right))
    ours, theirs = map(quantiles, errors)
    assert (ours <= theirs).all(), f"{ours.tolist()}, eager {theirs.tolist()} ulp"


@EACH_CELL
def test_gradients_in_float64_are_at_most_as_wrong_as_eager(name: str) -> None:
    """Of every argument, against differences of the step on numbers of 50 digits."""
    cell = CELLS[name]
    kernels, eager = of_kernels(cell), of_reference(cell)
    errors: tuple[list[Tensor], list[Tensor]] = ([], [])
    for draw in range(GRADIENT_DRAWS):
        given = Problem(cell, *DIGITS_SIZES, seed=draw).arguments(reset=False)
        weights = drawn_like(given, draw)
        right = cells_oracle_gradients.gradients(cell, given, weights)
        answers = [results(of, given, weights)[2:] for of in (kernels, eager)]
        torch.testing.assert_close([each.value for each in right], answers[1])
        for found, answer in zip(errors, answers, strict=True):
            found.extend(map(oracle.error, answer, right))
    ours, theirs = map(quantiles, errors)
    assert (ours <= theirs).all(), f"{ours.tolist()}, eager {theirs.tolist()} ulp"
