"""How wrong each cell's kernels are: errors in ulp against float64, beside eager PyTorch's.

As for the LLTM in test_oracle.py, the distribution over all elements is compared, by its median
and 90th percentile: where a sum cancels, which order of adding suffers is chance.
"""

from __future__ import annotations

import oracle
import pytest
import torch
from cells_cases import CELLS
from test_oracle import quantiles

from lltm import cells
from lltm._compile import unavailable_reason
from lltm.cells._prove import Problem, of_kernels, of_reference, results, with_tensors

pytestmark = pytest.mark.subprocess

SIZES = ((1, 5, 7, 20), (9, 5, 7, 20), (6, 17, 33, 64))
DRAWS = 6
NAMES = ("output", "last", "input", "weights", "bias", "states", "reset_state")
# A median of some 10^3 errors is known to a few percent.
CHANCE = 1.05
# Of a few rows, eager's sums over one step's batch and then over the steps have fewer terms than
# ours of 8 rows at a time: up to 1.31 of its median (rnn_relu in float32, AMD Zen 3).
OF_BIAS = 1.5


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    if reason := unavailable_reason():
        pytest.skip(f"not run: {reason}")
    assert all(cells.prepare(cell) for cell in CELLS.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_kernels_are_at_most_as_wrong_as_eager(name: str, dtype: torch.dtype) -> None:
    """Outputs and the gradient of every argument."""
    cell = CELLS[name]
    kernels, eager = of_kernels(cell), of_reference(cell)
    errors = {each: ([], []) for each in NAMES}
    for sizes in SIZES:
        for draw in range(DRAWS):
            given = Problem(cell, *sizes, dtype, seed=draw).arguments()
            wide = [each.double() for each in given.tensors() if each is not None]
            exact = map(oracle.Exact, results(eager, with_tensors(given, wide)))
            found = zip(results(kernels, given), results(eager, given), exact, strict=True)
            for each, (ours, theirs, right) in zip(NAMES, found, strict=True):
                errors[each][0].append(oracle.error(ours, right))
                errors[each][1].append(oracle.error(theirs, right))
    for each, pair in errors.items():
        ours, theirs = map(quantiles, pair)
        most = OF_BIAS if each == "bias" else CHANCE
        assert (ours <= most * theirs).all(), (
            f"{each}: {ours.tolist()}, eager {theirs.tolist()} ulp"
        )
