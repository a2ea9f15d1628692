"""Shapes, dtypes and order of the ops' arguments, checked where no kernel sees the data.

The kernels check the same contract in ``csrc/contract.h``; this twin serves the fake (meta)
implementations and the reference backend. Each check names the argument, what was expected and
what came.
"""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

FLOAT32_MAX = torch.finfo(torch.float32).max
CELL_TENSORS = ("input", "weights", "bias", "old_h", "old_cell")
SEQUENCE_TENSORS = ("input", "weights", "bias", "h0", "c0")


def check_types(op: str, names: tuple[str, ...], values: tuple[object, ...]) -> None:
    """Raise TypeError for the first value that is no tensor; ``bias`` may be None.

    The dispatcher would refuse it too, but with its own words and a RuntimeError.
    """
    for name, value in zip(names, values, strict=True):
        if not (isinstance(value, Tensor) or (value is None and name == "bias")):
            raise TypeError(f"lltm::{op}: {name} must be a Tensor, got {type(value).__name__}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def _check_tensor(op: str, name: str, value: Tensor, like: Tensor | None) -> None:
    if like is None:
        _require(
            value.dtype in DTYPES,
            f"lltm::{op}: {name} must be float32, float64, bfloat16 or float16, got {value.dtype}",
        )
        return
    _require(
        value.dtype == like.dtype,
        f"lltm::{op}: {name} must have the dtype of input, {like.dtype}, got {value.dtype}",
    )
    _require(
        value.device == like.device,
        f"lltm::{op}: {name} must be on the device of input, {like.device}, got {value.device}",
    )


def _check_shape(op: str, name: str, value: Tensor, expected: tuple[int, ...], terms: str) -> None:
    _require(
        value.dim() == len(expected)
        and all(got == want for got, want in zip(value.shape, expected, strict=True)),
        f"lltm::{op}: {name} must have shape {terms} = {list(expected)}, got {list(value.shape)}",
    )


def _check(
    op: str,
    leading: str,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    states: tuple[tuple[str, Tensor], tuple[str, Tensor]],
    alpha: float,
) -> None:
    (h_name, h), (c_name, c) = states
    _check_tensor(op, "input", input, None)
    for name, value in (("weights", weights), (h_name, h), (c_name, c)):
        _check_tensor(op, name, value, input)
    rank = 1 + len(leading.split(", "))
    _require(
        input.dim() == rank,
        f"lltm::{op}: input must have {rank} dimensions [{leading}, F], got {list(input.shape)}",
    )
    _require(
        h.dim() == 2,  # noqa: PLR2004 - [B, S]
        f"lltm::{op}: {h_name} must have 2 dimensions [B, S], got {list(h.shape)}",
    )
    batch, features = input.shape[-2:]
    state = h.shape[1]
    _check_shape(op, h_name, h, (batch, state), "[B, S]")
    _check_shape(op, c_name, c, (batch, state), "[B, S]")
    _check_shape(op, "weights", weights, (3 * state, state + features), "[3S, S + F]")
    if bias is not None:
        _check_tensor(op, "bias", bias, input)
        flat = (3 * state,)
        row = (1, 3 * state)
        if bias.dim() == 1:
            _check_shape(op, "bias", bias, flat, "[3S] or [1, 3S]")
        else:
            _check_shape(op, "bias", bias, row, "[3S] or [1, 3S]")
    if not isinstance(alpha, (numbers.Real, torch.SymFloat)):
        raise TypeError(f"lltm::{op}: alpha must be a float, got {type(alpha).__name__}")
    # No call on alpha and no message before it is needed: under torch.compile alpha is symbolic.
    if not 0 <= alpha < math.inf:  # nan compares false
        raise RuntimeError(f"lltm::{op}: alpha must be finite and not negative, got {alpha}")
    if input.dtype != torch.float64 and alpha > FLOAT32_MAX:
        raise RuntimeError(
            f"lltm::{op}: alpha must be at most {FLOAT32_MAX:g} unless input is float64, "
            f"got {alpha}"
        )


def check_cell(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    old_cell: Tensor,
    alpha: float,
) -> None:
    """Raise RuntimeError if a cell argument breaks the contract (TypeError for its type)."""
    check_types("cell", CELL_TENSORS, (input, weights, bias, old_h, old_cell))
    states = (("old_h", old_h), ("old_cell", old_cell))
    _check("cell", "B", input, weights, bias, states, alpha)


def check_sequence(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float,
) -> None:
    """Raise RuntimeError if a sequence argument breaks the contract (TypeError for its type)."""
    check_types("sequence", SEQUENCE_TENSORS, (input, weights, bias, h0, c0))
    _check("sequence", "T, B", input, weights, bias, (("h0", h0), ("c0", c0)), alpha)
