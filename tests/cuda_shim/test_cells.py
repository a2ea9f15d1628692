"""The CUDA kernels of every cell that ships, from its generated functor, run on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from any_cell import TOLERANCE, AnyCell, arguments, check
from cuda_shim import library
from torch import Tensor

from lltm import cells
from lltm.cells import formulas
from lltm.cells._functor import functor

REASON = library.unavailable_reason()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}"),
    pytest.mark.subprocess,
]

# T, B, F, S, H: several tiles of rows, groups and blocks; odd sizes, and packs of every dtype.
SHAPES = ((4, 3, 5, 16, 1), (3, 9, 2, 10, 1), (3, 2, 3, 33, 1))
WITH_HEADS = ((4, 3, 5, 16, 2), (3, 2, 3, 12, 4))
# In 16 bits one of so many elements is near enough to where an sLSTM's maximum or an RNN's ReLU
# changes sides, and its derivative with it: eager itself is off by 15 % of bfloat16's sLSTM then.
LARGE = (2, 3, 4, 256, 1)
CASES = [(shape, dtype) for shape in (*SHAPES, *WITH_HEADS) for dtype in TOLERANCE]
CASES += [(LARGE, dtype) for dtype in (torch.float32, torch.float64)]


def any_cell(definition: cells.Definition) -> AnyCell:
    # The defaults: with another alpha ELU's derivative jumps at 0, and 16 bits round to either
    # side.
    scalars = tuple(default for _, default in definition.scalars)
    return AnyCell(
        name=definition.name,
        struct="",
        states=definition.states,
        gates=definition.gates,
        split=definition.split,
        step=lambda z, recurrent, state: definition.advance((*z, *recurrent), state, scalars),
        scalars=scalars,
    )


@pytest.fixture(scope="module", params=formulas.SHIPPED, ids=lambda cell: cell.name)
def built(request: pytest.FixtureRequest) -> tuple[AnyCell, Any]:
    """A cell and its ops."""
    definition = request.param
    cache = Path(request.config.cache.mkdir("cuda_shim"))
    namespace = f"lltm_cuda_shim_{definition.name}"
    torch.ops.load_library(library.build_cell(cache, functor(definition), namespace))
    return any_cell(definition), getattr(torch.ops, namespace)


def given(cell: AnyCell, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor | None]:
    drawn = arguments(cell, shape, dtype)
    if cell.name == formulas.SLSTM.name:  # its normaliser is positive
        assert drawn[3] is not None
        drawn[3][2] = 1 + drawn[3][2].abs().round()
    return drawn


@pytest.mark.parametrize("in_one_launch", [True, False], ids=["one_launch", "step_by_step"])
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_it_equals_the_step_in_pytorch(
    built: tuple[AnyCell, Any], shape: tuple[int, ...], dtype: torch.dtype, in_one_launch: bool
) -> None:
    cell, ops = built
    with library.device(ops, multiprocessors=40 if in_one_launch else 0):
        _, before, _ = ops.counts()
        check(cell, ops, [*given(cell, shape, dtype), None], None, dtype)
        _, after, _ = ops.counts()
    assert after - before == (3 if in_one_launch else 0)  # twice forward, backward


@pytest.mark.parametrize("with_state", [False, True], ids=["zeros", "reset_state"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], WITH_HEADS[1]], ids=str)
def test_rows_begin_again(
    built: tuple[AnyCell, Any], shape: tuple[int, ...], dtype: torch.dtype, with_state: bool
) -> None:
    cell, ops = built
    drawn = given(cell, shape, dtype)
    reset = torch.rand(shape[:2]) < 0.4
    states = drawn[3]
    assert states is not None
    check(cell, ops, [*drawn, states / 2 if with_state else None], reset, dtype)


@pytest.mark.parametrize("in_one_launch", [True, False], ids=["one_launch", "step_by_step"])
@pytest.mark.parametrize("shape", [SHAPES[1], WITH_HEADS[0]], ids=str)
def test_weights_may_be_apart(
    built: tuple[AnyCell, Any], shape: tuple[int, ...], in_one_launch: bool
) -> None:
    cell, ops = built
    input, weights, *others = given(cell, shape, torch.float64)
    assert weights is not None
    parts = weights.tensor_split([shape[3] // shape[4]], dim=1)
    rest = (*others, list(cell.scalars), None, None)
    with library.device(ops, multiprocessors=40 if in_one_launch else 0):
        expected = ops.sequence(input, weights, *rest)
        found = ops.sequence(input, parts[0], *rest, parts[1])
    torch.testing.assert_close(found, expected)


def test_no_steps_leave_the_states(built: tuple[AnyCell, Any]) -> None:
    cell, ops = built
    input, weights, bias, states = given(cell, (0, 2, 3, 6, 1), torch.float64)
    assert states is not None
    scalars = list(cell.scalars)
    made = ops.sequence_forward(input, weights, bias, states, scalars, None, None)
    assert torch.equal(made[1], states)
    grad = torch.randn_like(states)
    backward = (None, grad, input, weights, bias, states, scalars, None, None, made[0], *made[2:])
    gradients = ops.sequence_backward(*backward, [True, True, True, True, False])
    assert torch.equal(gradients[3], grad)
    assert not any(gradient.any() for gradient in gradients[:3])


@pytest.mark.parametrize("built", [formulas.LSTM], indirect=True, ids=["lstm"])
def test_a_gpu_with_little_shared_memory_takes_the_steps_one_by_one(
    built: tuple[AnyCell, Any],
) -> None:
    """Of four gates and 1024 states more is staged than a block of sm_75 has room for."""
    cell, ops = built
    with library.device(ops, multiprocessors=80):
        before = ops.counts()
        check(
            cell,
            ops,
            [*arguments(cell, (2, 1, 2, 600, 1), torch.float32), None],
            None,
            torch.float32,
        )
        after = ops.counts()
    assert after[1] == before[1]
    assert after[0] > before[0]
