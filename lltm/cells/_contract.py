"""Shapes, dtypes and devices of a sequence's arguments, for any cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lltm import contract
from lltm.cells._definition import Definition

OP = "cells.sequence"


@dataclass(frozen=True)
class Arguments:
    """Of one layer in one direction.

    Attributes:
        input: ``[T, B, F]``.
        weights: ``[G * S, S / heads + F]``; the first ``S / heads`` columns multiply ``h``.
        bias: ``[P * S]`` or ``None``.
        states: ``[N, B, S]``.
        scalars: a number for each of the definition's.
        reset: bool ``[T, B]`` or ``None``: where the states start again before the step.
        reset_state: ``[N, B, S]``, what they start from; ``None`` for zeros.
    """

    input: Tensor
    weights: Tensor
    bias: Tensor | None
    states: Tensor
    scalars: Sequence[float]
    reset: Tensor | None = None
    reset_state: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Those that can have a gradient."""
        return self.input, self.weights, self.bias, self.states, self.reset_state


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(f"{OP}: {message}")


def check(definition: Definition, arguments: Arguments) -> None:
    """Raise RuntimeError if an argument's rank, size, dtype or device does not fit."""
    input, states = arguments.input, arguments.states
    _require(input.dim() == 3, f"input must have shape [T, B, F], got {list(input.shape)}")  # noqa: PLR2004 - the rank
    _require(
        input.dtype in contract.DTYPES,
        f"input must be float32, float64, bfloat16 or float16, got {input.dtype}",
    )
    _require(
        states.dim() == 3 and states.shape[:2] == (definition.states, input.shape[1]),  # noqa: PLR2004 - the rank
        f"states must have shape [N, B, S] with N = {definition.states} and B = {input.shape[1]}, "
        f"got {list(states.shape)}",
    )
    state, heads = states.shape[2], definition.heads
    _require(state % heads == 0, f"S = {state} must be a multiple of heads = {heads}")
    weights = (definition.gates * state, state // heads + input.shape[2])
    expected = [
        ("weights", arguments.weights, weights, "[G * S, S / heads + F]"),
        ("bias", arguments.bias, (definition.pre_activations * state,), "[P * S]"),
        ("reset_state", arguments.reset_state, tuple(states.shape), "[N, B, S]"),
    ]
    for name, tensor, shape, terms in expected:
        if tensor is not None:
            _require(
                tensor.dim() == len(shape)
                and all(got == want for got, want in zip(tensor.shape, shape, strict=True)),
                f"{name} must have shape {terms} = {list(shape)}, got {list(tensor.shape)}",
            )
    _check_kinds(arguments)
    _check_reset(arguments)


def _check_kinds(arguments: Arguments) -> None:
    like = arguments.input
    names = ("weights", "bias", "states", "reset_state")
    for name, tensor in zip(names, arguments.tensors()[1:], strict=True):
        if tensor is not None:
            _require(
                tensor.dtype == like.dtype,
                f"{name} must have the dtype of input, {like.dtype}, got {tensor.dtype}",
            )
            _require(
                tensor.device == like.device,
                f"{name} must be on the device of input, {like.device}, got {tensor.device}",
            )


def _check_reset(arguments: Arguments) -> None:
    reset, input = arguments.reset, arguments.input
    if reset is None:
        _require(arguments.reset_state is None, "reset_state needs reset, which is None")
        return
    _require(
        reset.dtype == torch.bool and reset.dim() == 2 and reset.shape == input.shape[:2],  # noqa: PLR2004 - the rank
        f"reset must be bool of shape [T, B] = {list(input.shape[:2])}, got {reset.dtype} "
        f"{list(reset.shape)}",
    )
    _require(
        reset.device == input.device,
        f"reset must be on the device of input, {input.device}, got {reset.device}",
    )
