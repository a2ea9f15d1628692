"""The ops of any cell, from functors written by hand, against the same step in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from any_cell import (
    FUNCTORS,
    GRU,
    LSTM,
    TOLERANCE,
    AnyCell,
    arguments,
    build,
    check,
)

pytestmark = pytest.mark.subprocess

CELLS = {cell.name: cell for cell in (LSTM, GRU)}
# T, B, F, S, H: below, at and above a vector's width, one and several heads.
SHAPES = ((5, 3, 7, 20, 1), (6, 9, 5, 40, 4), (1, 2, 3, 8, 2), (7, 17, 33, 64, 1), (3, 2, 0, 6, 1))


@pytest.fixture(scope="module", params=CELLS.values(), ids=list(CELLS))
def built(
    compiler: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[AnyCell, Any]:
    """A cell and its ops."""
    cell = request.param
    folder = tmp_path_factory.mktemp(cell.name)
    header = FUNCTORS / f"{cell.name}.inc"
    return cell, build(header, cell.struct, f"lltm_test_{cell.name}", folder)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_equals_the_step_in_pytorch(
    built: tuple[AnyCell, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    given = arguments(built[0], shape, dtype, bias=shape[1] != 9)
    check(*built, [*given, None], None, dtype)


@pytest.mark.parametrize("with_state", [False, True], ids=["zeros", "reset_state"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_begin_again(
    built: tuple[AnyCell, Any], shape: tuple[int, ...], dtype: torch.dtype, with_state: bool
) -> None:
    given = arguments(built[0], shape, dtype)
    reset = torch.rand(shape[:2]) < 0.4
    states = given[3]
    assert states is not None
    check(*built, [*given, -states if with_state else None], reset, dtype)


def test_what_no_row_needs_changes_nothing(built: tuple[AnyCell, Any]) -> None:
    cell, ops = built
    given = arguments(cell, SHAPES[0], torch.float32)
    low = [None if value is None else value.float() for value in given]
    never = torch.zeros(SHAPES[0][:2], dtype=torch.bool)
    for without, with_mask in zip(
        ops.sequence(*low, [], None, None), ops.sequence(*low, [], never, None), strict=True
    ):
        assert torch.equal(without, with_mask)


def test_it_names_the_kernels_that_it_runs(built: tuple[AnyCell, Any]) -> None:
    assert built[1].cpu_capability() == torch.ops.lltm.cpu_capability()


def test_no_steps_leave_the_states(built: tuple[AnyCell, Any]) -> None:
    cell, ops = built
    input, weights, bias, states = arguments(cell, (0, 2, 3, 6, 1), torch.float64)
    assert states is not None
    made = ops.sequence_forward(input, weights, bias, states, [], None, None)
    assert made[0].shape == (0, 2, 6)
    assert torch.equal(made[1], states)
    grad = torch.randn_like(states)
    backward = (None, grad, input, weights, bias, states, [], None, None, made[0], *made[2:])
    gradients = ops.sequence_backward(*backward, [True, True, True, True, False])
    assert torch.equal(gradients[3], grad)
    assert not any(gradient.any() for gradient in gradients[:3])


def test_the_maths_is_that_of_torch(built: tuple[AnyCell, Any]) -> None:
    """Against nn.LSTM and nn.GRU themselves, whose weights and biases are apart."""
    cell, ops = built
    steps, batch, features, state = 6, 4, 5, 12
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell.name](features, state).double()
    torch.manual_seed(1)
    input = torch.randn(steps, batch, features, dtype=torch.float64)
    states = torch.randn(cell.states, batch, state, dtype=torch.float64)
    first = tuple(states[:, None]) if cell.name == "lstm" else states
    with torch.no_grad():
        expected, _ = module(input, first)
        apart = module.weight_hh_l0, module.weight_ih_l0
        biases = (module.bias_ih_l0, module.bias_hh_l0)
        bias = torch.cat(biases) if cell.split else biases[0] + biases[1]
        joined, _ = ops.sequence(input, torch.cat(apart, 1), bias, states, [], None, None)
        output, _ = ops.sequence(input, apart[0], bias, states, [], None, None, apart[1])
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(output, joined)


def test_weights_of_several_heads_may_be_apart(built: tuple[AnyCell, Any]) -> None:
    cell, ops = built
    input, weights, bias, states = arguments(cell, SHAPES[1], torch.float64)
    assert weights is not None
    parts = weights[:, :10], weights[:, 10:]
    joined = ops.sequence(input, weights, bias, states, [], None, None)
    apart = ops.sequence(input, parts[0], bias, states, [], None, None, parts[1])
    assert all(map(torch.equal, apart, joined))


def test_weights_that_are_apart_must_leave_the_heads(built: tuple[AnyCell, Any]) -> None:
    cell, ops = built
    input, weights, bias, states = arguments(cell, SHAPES[0], torch.float64)
    assert weights is not None
    assert input is not None
    apart = weights.new_zeros(len(weights), input.shape[2])
    with pytest.raises(RuntimeError, match=r"weights must have shape \[\dS, S / H\] with H heads"):
        ops.sequence(input, weights, bias, states, [], None, None, apart)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": (1, 1)}, r"weights must have shape \[\dS, S / H \+ F\]"),
        ({"states": (9, 3, 20)}, r"states must have shape \[N, B, S\]"),
        ({"input_weights": (3, 7)}, r"input_weights must have shape \[\dS, F\]"),
        ({"bias": (5,)}, r"bias must have shape \[\dS\] or \[1, \dS\]"),
        ({"scalars": [1.0]}, "scalars must have 0 numbers, got 1"),
        ({"reset": torch.zeros(5, 3)}, "reset must be bool, got float32"),
        ({"reset": torch.zeros(4, 3, dtype=torch.bool)}, r"reset must have shape \[T, B\]"),
        ({"reset_state": (1, 3, 19)}, r"reset_state must have shape \[N, B, S\]"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(
    built: tuple[AnyCell, Any], change: dict[str, Any], message: str
) -> None:
    cell, ops = built
    names = ("input", "weights", "bias", "states")
    given: dict[str, Any] = dict(
        zip(names, arguments(cell, SHAPES[0], torch.float64), strict=True),
        scalars=[],
        reset=None,
        reset_state=None,
        input_weights=None,
    )
    for name, value in change.items():
        given[name] = torch.zeros(value).double() if isinstance(value, tuple) else value
    with pytest.raises(RuntimeError, match=message):
        ops.sequence(*given.values())
