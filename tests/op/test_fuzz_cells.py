"""The raw ops of three cells, with resets, as test_fuzz.py has the LLTM's; in heads, too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cases
import pytest
import torch
from cells_cases import CELLS
from fuzzing import FLOATS, attempt, explore, gradients_of, replacing, sizes, steps, tensor, weights
from hypothesis import strategies as st

from lltm import cells
from lltm.cells import _kernels, _reference
from lltm.cells._contract import Arguments

if TYPE_CHECKING:
    from torch import Tensor

    from lltm.cells._definition import Definition

pytestmark = pytest.mark.subprocess
NAMES = ("gru", "lstm", "slstm_heads")
"""Split; two states; a normaliser and heads."""
NEEDS = [True] * 5


@pytest.fixture(params=NAMES)
def cell(compiler: None, request: pytest.FixtureRequest) -> Definition:
    """A cell whose kernels are compiled before any case is counted or timed."""
    found = CELLS[request.param]
    assert cells.prepare(found)
    return found


def ops_of(cell: Definition) -> Any:
    return getattr(torch.ops, str(_kernels.namespace(cell)))


@st.composite
def fitting(draw: Any, cell: Definition) -> list[Any]:
    """Arguments that fit; states are positive, as a normaliser is."""
    batch, features, width = (draw(sizes) for _ in range(3))
    heads, time = draw(st.sampled_from([1, 1, 2, 3])), draw(steps)
    dtype, state = draw(st.sampled_from(FLOATS)), heads * width
    states = (cell.states, batch, state)
    reset = tensor((time, batch), torch.float64) > 0.4 if draw(st.booleans()) else None
    start = reset is not None and draw(st.booleans())
    return [
        tensor((time, batch, features), dtype, draw(st.booleans())),
        weights((cell.gates * state, width + features), dtype, draw(st.booleans())),
        tensor((cell.pre_activations * state,), dtype) if draw(st.booleans()) else None,
        tensor(states, torch.float64).abs().add(0.1).to(dtype),
        [default for _, default in cell.scalars],
        reset,
        tensor(states, torch.float64).cos().abs().add(0.1).to(dtype) if start else None,
    ]


def reference(cell: Definition, arguments: list[Any]) -> tuple[Tensor, ...]:
    """With as many heads as the weights have."""
    given = Arguments(*arguments)
    if given.bias is not None:
        given = given._replace(bias=given.bias.flatten())
    width = given.weights.shape[1] - given.input.shape[2]
    heads = given.states.shape[2] // width if width else 1
    return _reference.sequence(replace(cell, heads=heads), given)


def double(arguments: list[Any]) -> list[Any]:
    return [
        each.double() if isinstance(each, torch.Tensor) and each.dtype != torch.bool else each
        for each in arguments
    ]


def compare(cell: Definition, outputs: tuple[Tensor, ...], arguments: list[Any]) -> None:
    expected = zip(reference(cell, arguments), reference(cell, double(arguments)), strict=True)
    for actual, (own, exact) in zip(outputs, expected, strict=False):
        cases.assert_as_right(actual, own, exact, cell.name)


def is_stable(cell: Definition, arguments: list[Any]) -> bool:
    """Whether nothing is divided by what may be nearly zero."""
    states = [each for each in (arguments[3], arguments[6]) if each is not None]
    return cell.name != "slstm" or all(bool((each >= 0.1).all()) for each in states)


def is_smooth(cell: Definition, dtype: torch.dtype) -> bool:
    """Whether rounding cannot take the other side of the stabiliser's maximum."""
    return cell.name != "slstm" or dtype == torch.float64


def test_nearly_right_arguments(cell: Definition) -> None:
    ops = ops_of(cell)

    def check(arguments: list[Any]) -> bool:
        accepted = []
        for op in (ops.sequence.default, ops.sequence_forward.default):
            outputs = attempt(op, arguments)
            accepted.append(outputs is not None)
            if outputs is not None and is_stable(cell, arguments):
                compare(cell, outputs, arguments)
        assert accepted[0] == accepted[1]
        return accepted[0]

    explore(f"{cell.name} nearly right", check, fitting(cell).flatmap(replacing))


def test_gradients(cell: Definition) -> None:
    """Of arguments that fit, or of some of which a few are something else."""
    ops = ops_of(cell)

    def check(arguments: list[Any], drawn: Any) -> bool:
        output, last, *saved = ops.sequence_forward(*arguments)
        seeds = list(cases.cotangents((output, last)))
        good = [*seeds, *arguments, output, *saved]
        there = [arguments[at] is not None for at in (0, 1, 2, 3, 6)]
        needs = [need and each for need, each in zip(NEEDS, there, strict=True)]
        given = drawn.draw(st.one_of(st.just(good), replacing(good)))
        results = attempt(ops.sequence_backward.default, [*given, needs])
        if results is None:
            return False
        fits = all(each is other for each, other in zip(given, good, strict=True))
        if fits and is_smooth(cell, output.dtype):
            own = gradients(cell, arguments, seeds)
            exact = gradients(cell, double(arguments), double(seeds))
            for found, ours, truth in zip(results, own, exact, strict=True):
                if ours is not None:
                    cases.assert_as_right(found, ours, truth, f"gradient of {cell.name}")
        return True

    explore(f"{cell.name} gradients", check, fitting(cell), st.data())


def gradients(cell: Definition, arguments: list[Any], seeds: list[Any]) -> list[Any]:
    """The reference's, for each of the five arguments that can have one."""
    input, recurrent, bias, states, scalars, reset, start = arguments

    def function(*tensors: Any) -> tuple[Tensor, ...]:
        return reference(cell, [*tensors[:4], scalars, reset, tensors[4]])

    return gradients_of(function, [input, recurrent, bias, states, start], seeds)


def test_a_state_of_nothing_has_no_heads(cell: Definition) -> None:
    """Weights ``[0, F + 2]`` would be heads of a width that divides no state: by 0 of them."""
    ops, batch, features = ops_of(cell), 2, 3
    states = torch.zeros(cell.states, batch, 0)
    input, wrong = torch.zeros(4, batch, features), torch.zeros(0, features + 2)
    scalars = [default for _, default in cell.scalars]
    given = [input, wrong, None, states, scalars, None, None]
    saved = ops.sequence_forward(*[input, wrong[:, 2:], *given[2:]])
    words = r"weights must have shape .*, got \[0, 5\]"
    for op in (ops.sequence, ops.sequence_forward):
        with pytest.raises(RuntimeError, match=words):
            op(*given)
    output, last, *kept = saved
    with pytest.raises(RuntimeError, match=words):
        ops.sequence_backward(output, last, *given, output, *kept, [True, True, False, True, False])
