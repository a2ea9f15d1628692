"""Arbitrary arguments at the raw ops give the reference's results or errors, never a crash.

The same cases each time; more of them, from LLTM_FUZZ_SEED on, for LLTM_FUZZ_SECONDS a test. Each
test appends how many it took to the file LLTM_FUZZ_LOG.
"""

from __future__ import annotations

import os
import time
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cases
import pytest
import torch
from cases import Case
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

MORE_S = float(os.environ.get("LLTM_FUZZ_SECONDS", "0"))
LOG = os.environ.get("LLTM_FUZZ_LOG")
SEED = int(os.environ.get("LLTM_FUZZ_SEED", "1"))
OPS = ("cell", "sequence")
NO_BIAS = "needs_input_grad asks for the gradient of bias, which is None"
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SETTINGS = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MORE = settings(SETTINGS, derandomize=False, database=None, print_blob=True)
sizes = st.integers(0, 5)
alphas = st.one_of(st.floats(0, 4), st.sampled_from([-1.0, 1e300, float("inf"), float("nan")]))


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, transposed: bool) -> Tensor:
    values = torch.arange(1, 1 + max(1, torch.Size(shape).numel()), dtype=torch.float64).sin()
    tensor = values[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    return tensor.mT.contiguous().mT if transposed and tensor.dim() > 1 else tensor


@st.composite
def anything(draw: Any) -> Tensor:
    """A tensor of any rank, size, dtype and layout."""
    shape = tuple(draw(st.lists(sizes, max_size=4)))
    return _tensor(shape, draw(st.sampled_from(DTYPES)), draw(st.booleans()))


@st.composite
def nearly_right(draw: Any, op: str) -> list[Any]:
    """Arguments that fit, of which at most two are then replaced or reshaped."""
    batch, features, state, steps = (draw(sizes) for _ in range(4))
    dtype = draw(st.sampled_from(DTYPES[:4]))
    lead = (batch,) if op == "cell" else (steps, batch)
    shapes = [
        (*lead, features),
        (3 * state, state + features),
        draw(st.sampled_from([(3 * state,), (1, 3 * state), None])),
        (batch, state),
        (batch, state),
    ]
    arguments: list[Any] = [
        None if shape is None else _tensor(shape, dtype, draw(st.booleans())) for shape in shapes
    ]
    for position in draw(st.lists(st.integers(0, 4), max_size=2)):
        arguments[position] = draw(anything())
    return [*arguments, draw(alphas)]


def explore(check: Callable[..., None], *strategies: Any) -> None:
    """Check the cases of every run, and more of them while there is time."""
    checked = 0

    @wraps(check)  # Hypothesis reads the signature
    def counted(*arguments: Any, **named: Any) -> None:
        nonlocal checked
        checked += 1
        check(*arguments, **named)

    SETTINGS(given(*strategies)(counted))()
    end = time.monotonic() + MORE_S
    for number in count(SEED):
        if time.monotonic() >= end:
            break
        seed(number)(MORE(given(*strategies)(counted)))()
    if LOG:
        with Path(LOG).open("a", encoding="utf-8") as file:
            file.write(f"{checked}\n")


def _attempt(case: Case, suffix: str, arguments: list[Any]) -> tuple[Tensor, ...] | None:
    """Call; what an error says must be the op's own words."""
    try:
        return case.raw(suffix)(*arguments)
    except (RuntimeError, TypeError) as error:
        message = str(error)
        assert f"lltm::{case.op}" in message, message
        expected_and_got = " must " in message and ", got " in message
        assert expected_and_got or NO_BIAS in message, message
        return None


def _check(case: Case, arguments: list[Any]) -> None:
    for suffix in ("", "_forward"):
        outputs = _attempt(case, suffix, arguments)
        if outputs is None:
            continue
        expected = case.reference(*arguments)
        for a, e in zip(outputs, expected, strict=False):
            cases.assert_close(a, e, suffix)


@pytest.mark.parametrize("op", OPS)
def test_nearly_right_arguments(op: str) -> None:
    def check(arguments: list[Any]) -> None:
        _check(cases.SMALL[op], arguments)

    explore(check, nearly_right(op))


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Case.raw

    def planted(self: Case, suffix: str = "") -> Callable[..., Any]:
        def call(*arguments: Any) -> list[Tensor]:
            outputs = right(self, suffix)(*arguments)
            wrong = outputs[0].shape == (3, 2)
            return [output + 0.1 if wrong else output for output in outputs]

        return call

    monkeypatch.setattr(Case, "raw", planted)
    with pytest.raises(AssertionError, match="not close"):
        test_nearly_right_arguments("cell")


@pytest.mark.parametrize("op", OPS)
def test_arbitrary_arguments(op: str) -> None:
    def check(arguments: tuple[Any, ...]) -> None:
        _check(cases.SMALL[op], list(arguments))

    explore(check, st.tuples(*[anything()] * 5, alphas))


@pytest.mark.parametrize("op", OPS)
def test_raw_backward(op: str) -> None:
    """The backward kernels trust no saved tensor, though autograd alone should call them."""
    case = cases.SMALL[op]
    arguments = case.arguments()
    results = case.raw("_forward")(*arguments)
    count = len(cases.OUTPUT_NAMES[op])
    saved = list(results[1:]) if op == "cell" else [results[0], *results[count:]]
    seeds = list(cases.cotangents(results[:count]))
    right = [*seeds, *arguments[:5], *saved]
    expected = cases.reference_gradients(case, arguments.leaves())

    def check(replaced: dict[int, Tensor | None], needs: list[bool], alpha: float) -> None:
        given_arguments = [replaced.get(index, value) for index, value in enumerate(right)]
        gradients = _attempt(case, "_backward", [*given_arguments, alpha, needs])
        if gradients is None or replaced or alpha != case.alpha:
            return
        for gradient, e, need in zip(gradients, expected, needs, strict=True):
            if need:
                cases.assert_close(gradient, e, "gradient")
            else:
                assert not gradient.numel()

    explore(
        check,
        st.dictionaries(
            st.integers(0, len(right) - 1), st.one_of(st.none(), anything()), max_size=2
        ),
        st.lists(st.booleans(), min_size=5, max_size=5),
        alphas,
    )
