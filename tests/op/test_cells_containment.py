"""For each cell: whatever a row holds stays in it, and no step sees a later one."""

from __future__ import annotations

import pytest
import torch
from cases import DTYPES, identify
from cells_cases import CELLS, EACH_CELL
from test_containment import STRIPES, VALUES, poison
from torch import Tensor

from lltm.cells._contract import Arguments
from lltm.cells._problem import Problem, of_kernels, results, with_tensors

pytestmark = [
    pytest.mark.subprocess,
    pytest.mark.usefixtures("compiled_cells"),
    EACH_CELL,
    pytest.mark.parametrize("dtype", DTYPES, ids=identify),
]
SIZES = ((4, 3, 2, 6), (4, 17, 53, 32), (3, 33, 8, 18))


def seeds(arguments: Arguments) -> list[Tensor]:
    """Cotangents of output and last states."""
    shape = (*arguments.input.shape[:2], arguments.states.shape[2])
    return [
        torch.linspace(-1, 1, each.numel()).view_as(each).to(arguments.input.dtype)
        for each in (torch.empty(shape), arguments.states)
    ]


def per_row(name: str, arguments: Arguments, cotangents: list[Tensor]) -> list[Tensor]:
    """Outputs, and the gradients that have a row for each row of the batch."""
    output, last, d_input, _, _, *rest = results(of_kernels(CELLS[name]), arguments, cotangents)
    return [output, last, d_input, *rest]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_row_stays_in_its_row(name: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    arguments = Problem(CELLS[name], *sizes, dtype).arguments()
    weights = seeds(arguments)
    alone = per_row(name, arguments, weights)
    input, w, bias, *states = arguments.tensors()
    for value in VALUES:
        for stripe in STRIPES:
            poisoned = [poison(each, stripe, value) for each in (input, *states)]
            beside = per_row(
                name,
                with_tensors(arguments, [poisoned[0], w, bias, *poisoned[1:]]),
                [poison(each, stripe, value) for each in weights],
            )
            clean = slice(1 - stripe, None, 2)
            for index, (a, e) in enumerate(zip(beside, alone, strict=True)):
                assert torch.equal(a[..., clean, :], e[..., clean, :]), f"{value}: {index}"


def test_no_step_sees_a_later_one(name: str, dtype: torch.dtype) -> None:
    """Nor does a gradient see the output gradient of an earlier step."""
    arguments = Problem(CELLS[name], *SIZES[1], dtype).arguments(reset=False)
    weights = seeds(arguments)
    output, _, d_input, _ = per_row(name, arguments, weights)
    tensors = [each for each in arguments.tensors() if each is not None]
    for step in range(1, len(output)):
        later, earlier = arguments.input.clone(), weights[0].clone()
        later[step:] = earlier[:step] = float("nan")
        seen = of_kernels(CELLS[name])(with_tensors(arguments, [later, *tensors[1:]]))[0]
        assert torch.equal(seen[:step], output[:step])
        seen = per_row(name, arguments, [earlier, weights[1]])[2]
        assert torch.equal(seen[step:], d_input[step:])
