"""Errors have absolute bounds, on every processor and in every instruction set."""

from __future__ import annotations

from dataclasses import replace

import bounds
import cases
import pytest
import torch
from cases import CASES, DTYPES, Case
from torch import Tensor

import lltm

ids = cases.identify
OURS = [
    row.name
    for row in lltm.backends.available()
    if row.bindings and "cpu" in row.devices and row.name != "aten"
]
"""The products of ``aten``, and those on a GPU, are torch's."""
NAMES = ("input", "weights", "bias", "h", "c")
BOUNDED = [
    case
    for case in CASES
    if case.values not in {"inf", "inf_bias", "nan"} and case.batch and case.steps != 0
]
SIZES = (
    Case("wide", 12, 300, 160),
    Case("many rows", 300, 33, 20),
    Case("wide", 5, 200, 70, steps=3),
    Case("many steps", 9, 6, 5, steps=40),
)
"""More terms of each sum than the kernels add in one block."""


def _small(case: Case) -> Case:
    """Fewer rows, for the time: what is summed over them has cases of its own."""
    return replace(case, batch=min(case.batch, 40), state=min(case.state, 70))


def share(actual: Tensor, bounded: bounds.Bounded) -> float:
    """Largest error as a share of its bound."""
    error = (actual.double() - bounded.value.reshape(actual.shape)).abs()
    allowed = bounded.error.reshape(actual.shape)
    return float(torch.where(error == 0, 0.0, error / allowed).amax()) if error.numel() else 0.0


@pytest.mark.parametrize("backend", OURS)
@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", [*map(_small, BOUNDED), *SIZES], ids=ids)
def test_errors_are_within_their_bounds(case: Case, dtype: torch.dtype, backend: str) -> None:
    arguments = case.arguments(dtype, "cpu")
    leaves = arguments.leaves()
    expected, saved = bounds.forward(case, arguments)
    outputs = case.function(*leaves, backend=backend)
    for index, (actual, bounded) in enumerate(zip(outputs, expected, strict=True)):
        assert share(actual.detach(), bounded) <= 1, f"output {index}"
    seeds = cases.cotangents(outputs)
    names = [name for name, leaf in zip(NAMES, arguments[:5], strict=True) if leaf is not None]
    actual_gradients = torch.autograd.grad(outputs, leaves.tensors(), seeds)
    allowed = bounds.backward(case, arguments, saved, seeds)
    for name, gradient in zip(names, actual_gradients, strict=True):
        assert share(gradient, allowed[name]) <= 1, f"gradient of {name}"


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_bounds_notice_one_term_that_is_missing(dtype: torch.dtype) -> None:
    """Bounds that nothing can exceed would prove nothing."""
    case = Case("noticed", 4, 9, 8)
    arguments = case.arguments(dtype, "cpu")
    expected, _ = bounds.forward(case, arguments)
    without = arguments.input.clone()
    without[:, -1] = 0
    outputs = case.function(*arguments._replace(input=without))
    assert all(share(a, b) > 1 for a, b in zip(outputs, expected, strict=True))
