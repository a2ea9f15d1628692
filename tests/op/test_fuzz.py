"""Arbitrary arguments at the raw ops give the reference's results or errors, never a crash.

What they give is compared with float64. Which cases, and how many: fuzzing.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cases
import pytest
import torch
from cases import Case
from fuzzing import (
    FLOATS,
    alphas,
    anything,
    attempt,
    explore,
    gradients_of,
    replacing,
    sizes,
    something_else,
    steps,
    tensor,
    weights,
)
from hypothesis import strategies as st

from lltm import contract

if TYPE_CHECKING:
    from torch import Tensor

OPS = ("cell", "sequence")


@st.composite
def fitting(draw: Any, op: str) -> list[Any]:
    """Arguments that fit."""
    batch, features, state = (draw(sizes) for _ in range(3))
    dtype = draw(st.sampled_from(FLOATS))
    lead = (batch,) if op == "cell" else (draw(steps), batch)
    bias = draw(st.sampled_from([(3 * state,), (1, 3 * state), None]))
    flags = [draw(st.booleans()) for _ in range(5)]
    return [
        tensor((*lead, features), dtype, flags[0]),
        weights((3 * state, state + features), dtype, flags[1]),
        None if bias is None else tensor(bias, dtype, flags[2]),
        tensor((batch, state), dtype, flags[3]),
        tensor((batch, state), dtype, flags[4]),
        draw(alphas),
    ]


def nearly_right(op: str) -> Any:
    """Arguments that fit, of which at most two are then something else."""
    return fitting(op).flatmap(replacing)


def right(case: Case, arguments: list[Any]) -> list[tuple[Tensor, Tensor]]:
    """The reference's results, in the arguments' dtype and in float64."""
    wide = [each if each is None else each.double() for each in arguments[:5]]
    exact = case.reference(*wide, arguments[5])
    return list(zip(case.reference(*arguments), exact, strict=True))


def compare(case: Case, outputs: tuple[Tensor, ...], arguments: list[Any], what: str) -> None:
    expected = right(case, arguments)
    for actual, (reference, exact) in zip(outputs, expected, strict=False):
        cases.assert_as_right(actual, reference, exact, what)


def check_forward(op: str, arguments: list[Any]) -> bool:
    case = cases.SMALL[op]
    accepted = []
    for suffix in ("", "_forward"):
        outputs = attempt(case.raw(suffix), arguments)
        accepted.append(outputs is not None)
        if outputs is not None:
            compare(case, outputs, arguments, op + suffix)
    assert accepted[0] == accepted[1]
    return accepted[0]


@pytest.mark.parametrize("op", OPS)
def test_nearly_right_arguments(op: str) -> None:
    explore(f"{op} nearly right", lambda arguments: check_forward(op, arguments), nearly_right(op))


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Case.raw

    def planted(self: Case, suffix: str = "") -> Any:
        op = raw(self, suffix)

        class Planted:
            """An op that is wrong for rows of more than a vector."""

            name = op.name

            def __call__(self, *arguments: Any) -> list[Tensor]:
                outputs = op(*arguments)
                wrong = outputs[0].shape[-1] > 16
                return [output + 0.1 if wrong else output for output in outputs]

        return Planted()

    monkeypatch.setattr(Case, "raw", planted)
    with pytest.raises(AssertionError, match="not close"):
        test_nearly_right_arguments("cell")


@pytest.mark.parametrize("op", OPS)
def test_arbitrary_arguments(op: str) -> None:
    explore(
        f"{op} arbitrary",
        lambda arguments: check_forward(op, list(arguments)),
        st.tuples(*[anything()] * 5, alphas),
    )


@pytest.mark.parametrize("op", OPS)
def test_gradients(op: str) -> None:
    """Of any sizes, for which the ELU has no kink: its side is a matter of rounding."""
    case = cases.SMALL[op]

    def check(arguments: list[Any], needs: list[bool]) -> bool:
        arguments[5] = 1.0
        needs[2] = needs[2] and arguments[2] is not None
        results = case.raw("_forward")(*arguments)
        count = len(cases.OUTPUT_NAMES[op])
        saved = list(results[1:]) if op == "cell" else [results[0], *results[count:]]
        seeds = list(cases.cotangents(tuple(results[:count])))
        gradients = case.raw("_backward")(*seeds, *arguments[:5], *saved, 1.0, needs)
        wide = [None if each is None else each.double() for each in (*seeds, *arguments[:5])]
        reference = gradients_of(case.reference, arguments[:5], seeds)
        exact = gradients_of(case.reference, wide[count:], wide[:count])
        for found, own, truth, need in zip(gradients, reference, exact, needs, strict=True):
            if need:
                cases.assert_as_right(found, own, truth, "gradient")
            else:
                assert not found.numel()
        return True

    needed = st.lists(st.booleans(), min_size=5, max_size=5)
    explore(f"{op} gradients", check, fitting(op), needed)


@pytest.mark.parametrize("op", OPS)
def test_raw_backward(op: str) -> None:
    """The backward kernels trust no saved tensor, though autograd alone should call them."""
    case = cases.SMALL[op]
    arguments = case.arguments()
    results = case.raw("_forward")(*arguments)
    count = len(cases.OUTPUT_NAMES[op])
    saved = list(results[1:]) if op == "cell" else [results[0], *results[count:]]
    seeds = list(cases.cotangents(results[:count]))
    good = [*seeds, *arguments[:5], *saved]
    expected = cases.reference_gradients(case, arguments.leaves())

    def check(replaced: dict[int, Tensor | None], needs: list[bool], alpha: float) -> bool:
        given_arguments = [replaced.get(index, value) for index, value in enumerate(good)]
        gradients = attempt(case.raw("_backward"), [*given_arguments, alpha, needs])
        if gradients is None:
            return False
        for gradient, e, need in zip(gradients, expected, needs, strict=True):
            if not need:
                assert not gradient.numel()
            elif not replaced and alpha == case.alpha:
                cases.assert_close(gradient, e, "gradient")
        return True

    explore(
        f"{op} backward",
        check,
        st.dictionaries(
            st.integers(0, len(good) - 1), st.one_of(st.none(), anything()), max_size=2
        ),
        st.lists(st.booleans(), min_size=5, max_size=5),
        st.one_of(st.just(case.alpha), alphas),
    )


# pack, stream_step ------------------------------------------------------------------------------

WRITTEN = (4, 5)
"""cell and new_h."""


@st.composite
def streamed(draw: Any) -> tuple[list[Any], Tensor]:
    """Arguments of stream_step, of which at most two are something else; and the weights."""
    input, given_weights, bias, old_h, cell, alpha = draw(fitting("cell"))
    cell = cell.contiguous()
    packed = torch.ops.lltm.pack(given_weights)
    arguments = [input, packed, bias, old_h, cell, torch.full_like(cell, 7.0), alpha]
    replaced = draw(replacing(arguments))
    if draw(st.booleans()):  # two arguments in one memory
        to, of = draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
        replaced[to] = replaced[of]
    return replaced, given_weights


def test_stream_step() -> None:
    op, case = torch.ops.lltm.stream_step.default, cases.SMALL["cell"]

    def check(drawn: tuple[list[Any], Tensor]) -> bool:
        arguments, given_weights = drawn
        before = [each.clone() if hasattr(each, "clone") else each for each in arguments]
        if attempt(op, arguments) is None:
            for at in WRITTEN:
                untouched = before[at] is None or torch.equal(before[at], arguments[at])
                assert untouched, "what was refused has written"
            return False
        input, packed, bias, old_h, cell, _, alpha = before
        of_weights = torch.ops.lltm.pack(given_weights)
        shape = (3 * old_h.shape[1], old_h.shape[1] + input.shape[1])
        fits = given_weights.shape == shape and given_weights.dtype == input.dtype
        if fits and torch.equal(packed, of_weights):
            results = arguments[5], arguments[4]
            compare(case, results, [input, given_weights, bias, old_h, cell, alpha], "stream_step")
        return True

    explore("stream_step", check, streamed())


def not_zero(values: Tensor) -> Tensor:
    return values[values != 0].double().sort().values


def test_pack() -> None:
    op = torch.ops.lltm.pack.default

    def check(given_weights: Tensor | None) -> bool:
        results = attempt(op, [given_weights])
        if results is None:
            return False
        assert given_weights is not None
        (packed,) = results
        elements, dtype = contract.check_pack(given_weights)
        assert (packed.shape, packed.dtype) == ((elements,), dtype)
        # Every weight is there, once, and zeros beside: in the type that is computed in, or in its
        # own where the processor multiplies that.
        views = {packed.dtype: packed, given_weights.dtype: packed.view(given_weights.dtype)}
        expected = not_zero(given_weights)
        assert any(torch.equal(not_zero(view), expected) for view in views.values())
        return True

    good = fitting("cell").map(lambda each: each[1])
    explore("pack", check, st.one_of(good, good.flatmap(something_else)))
