"""Shapes, dtypes and order of the ops' arguments, checked where no kernel sees the data.

The kernels check the same contract in ``csrc/checks.h``; this twin serves the fake (meta)
implementations and the reference backend. Each check names the argument, what was expected and
what came.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

LIBRARIES = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
"""The folders of torch and of this package, whose lines are never the user's."""

FLOAT32_MAX = torch.finfo(torch.float32).max
CELL_TENSORS = ("input", "weights", "bias", "old_h", "old_cell")
SEQUENCE_TENSORS = ("input", "weights", "bias", "h0", "c0")


def check_types(op: str, names: tuple[str, ...], values: tuple[object, ...]) -> None:
    """Raise TypeError for the first value that is no tensor; ``bias`` may be None.

    The dispatcher would refuse it too, but with its own words and a RuntimeError.
    """
    for index, value in enumerate(values):  # half a microsecond less than zip with names
        if not (isinstance(value, Tensor) or (value is None and names[index] == "bias")):
            kind = type(value).__name__
            raise TypeError(f"lltm::{op}: {names[index]} must be a Tensor, got {kind}")


def check_size(name: str, value: object, least: int = 1) -> None:
    """Raise TypeError for a size that is no int, ValueError for one below ``least``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < least:
        bound = "greater than zero" if least else "at least 0"
        raise ValueError(f"{name} must be {bound}, got {value}")


def check_number(name: str, value: object) -> None:
    """Raise TypeError for what is no real number; True and False are meant for another argument."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a float, got {type(value).__name__}")


def is_finite(number: float) -> bool:
    """Whether a float holds it: no int beyond all floats, and not by a comparison of numpy's."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def check_bool(**switches: object) -> None:
    """Raise TypeError for what is no bool; a number is meant for another argument."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {type(value).__name__}")


def check_alpha(alpha: float) -> None:
    """Raise TypeError for an ``alpha`` that is no number, ValueError for one out of range."""
    check_number("alpha", alpha)
    if not (is_finite(alpha) and alpha >= 0):
        raise ValueError(f"alpha must be finite and not negative, got {alpha}")


def check_dropout(dropout: float, num_layers: int) -> None:
    """Raise TypeError for what is no number, ValueError out of ``[0, 1]``; warn of one layer."""
    check_number("dropout", dropout)
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout must be a probability in [0, 1], got {dropout}")
    if dropout and num_layers == 1:
        warnings.warn(
            f"dropout={dropout} has no effect with num_layers=1: it is applied between layers",
            stacklevel=users_level(),
        )


def users_level() -> int:
    """The ``stacklevel`` of a warning at the user's line, however far up it is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_code.co_filename.startswith(LIBRARIES) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def check_dtype(dtype: torch.dtype | None) -> None:
    """Raise ValueError for parameters of a dtype that the ops do not compute in."""
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype must be float32, float64, bfloat16 or float16, got {dtype}")


def check_state(name: str, state: object) -> None:
    """Raise TypeError for a state that is no pair of tensors."""
    if (
        not isinstance(state, (tuple, list))
        or len(state) != 2
        or not all(isinstance(part, Tensor) for part in state)
    ):
        raise TypeError(f"{name} must be a tuple (h, c) of two Tensors, got {describe(state)}")


def describe(value: object) -> str:
    """The type of a value, and of a sequence's elements."""
    if isinstance(value, (tuple, list)):
        inner = ", ".join(type(part).__name__ for part in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return type(value).__name__


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def layout_of(value: Tensor) -> torch.layout | str:
    """The layout; of a nested or a quantized tensor, which may claim to be strided, that word."""
    return "nested" if value.is_nested else "quantized" if value.is_quantized else value.layout


def check_dense(where: str, name: str, value: Tensor) -> None:
    """Raise RuntimeError for a sparse, nested, quantized or MKL-DNN tensor.

    Args:
        where: what the message begins with, such as the op.
        name: of the argument.
        value: what was given for it.
    """
    if (layout := layout_of(value)) != torch.strided:
        raise RuntimeError(f"{where}: {name} must be a dense tensor (strided), got {layout}")


def check_module_input(input: Tensor, size: str, features: int) -> None:
    """Raise RuntimeError if a module's input is not dense, or its last size is another.

    Args:
        input: what a module over sequences was called with, data of a packed batch.
        size: what the module calls ``F``.
        features: ``F``.
    """
    if input.is_nested:
        raise RuntimeError(
            "input must be a dense tensor, got nested; for rows of different lengths pass "
            "torch.nn.utils.rnn.pack_sequence(input.unbind(), enforce_sorted=False)"
        )
    if input.layout != torch.strided:
        raise RuntimeError(f"input must be a dense tensor (strided), got {input.layout}")
    if input.shape[-1] != features:
        raise RuntimeError(
            f"input must have {size} = {features} as its last size, got {list(input.shape)}"
        )


def _check_tensor(op: str, name: str, value: Tensor, like: Tensor | None) -> None:
    check_dense(f"lltm::{op}", name, value)
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


def check_bias(op: str, bias: Tensor | None, like: Tensor, state: int) -> None:
    """Raise RuntimeError for a bias that is neither ``[3S]``, ``[1, 3S]`` nor ``None``."""
    if bias is None:
        return
    _check_tensor(op, "bias", bias, like)
    shape = (3 * state,) if bias.dim() == 1 else (1, 3 * state)
    _check_shape(op, "bias", bias, shape, "[3S] or [1, 3S]")


def _check(
    op: str,
    leading: str,
    input: Tensor,
    weights: Tensor | None,
    bias: Tensor | None,
    states: tuple[tuple[str, Tensor], tuple[str, Tensor]],
    alpha: float,
) -> None:
    (h_name, h), (c_name, c) = states
    _check_tensor(op, "input", input, None)
    for name, value in (("weights", weights), (h_name, h), (c_name, c)):
        if value is not None:
            _check_tensor(op, name, value, input)
    rank = 1 + len(leading.split(", "))
    _require(
        input.dim() == rank,
        f"lltm::{op}: input must have {rank} dimensions [{leading}, F], got {list(input.shape)}",
    )
    _require(
        h.dim() == 2,
        f"lltm::{op}: {h_name} must have 2 dimensions [B, S], got {list(h.shape)}",
    )
    batch, features = input.shape[-2:]
    state = h.shape[1]
    _check_shape(op, h_name, h, (batch, state), "[B, S]")
    _check_shape(op, c_name, c, (batch, state), "[B, S]")
    if weights is not None:
        _check_shape(op, "weights", weights, (3 * state, state + features), "[3S, S + F]")
    check_bias(op, bias, input, state)
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


def _check_like(
    op: str, name: str, value: Tensor, input: Tensor, expected: tuple[int, ...], terms: str
) -> None:
    _check_tensor(op, name, value, input)
    _check_shape(op, name, value, expected, terms)


def check_needs(op: str, needs: Sequence[bool], bias: Tensor | None) -> None:
    """Raise RuntimeError for a ``needs_input_grad`` that does not fit."""
    _require(
        len(needs) == len(CELL_TENSORS),
        f"lltm::{op}: needs_input_grad must have {len(CELL_TENSORS)} entries, got {len(needs)}",
    )
    _require(
        bias is not None or not needs[CELL_TENSORS.index("bias")],
        f"lltm::{op}: needs_input_grad asks for the gradient of bias, which is None",
    )


def check_cell(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    old_cell: Tensor,
    alpha: float = 1.0,
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
    alpha: float = 1.0,
) -> None:
    """Raise RuntimeError if a sequence argument breaks the contract (TypeError for its type)."""
    check_types("sequence", SEQUENCE_TENSORS, (input, weights, bias, h0, c0))
    _check("sequence", "T, B", input, weights, bias, (("h0", h0), ("c0", c0)), alpha)


def check_cell_backward(
    grad_new_h: Tensor | None,
    grad_new_cell: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    old_cell: Tensor,
    new_cell: Tensor,
    gates: Tensor,
    alpha: float,
    needs_input_grad: Sequence[bool],
) -> None:
    """Raise RuntimeError if an argument of ``cell_backward`` breaks the contract."""
    op = "cell_backward"
    _check(op, "B", input, weights, bias, (("old_h", old_h), ("old_cell", old_cell)), alpha)
    batch, state = old_h.shape
    _check_like(op, "new_cell", new_cell, input, (batch, state), "[B, S]")
    _check_like(op, "gates", gates, input, (batch, 3 * state), "[B, 3S]")
    for name, grad in (("grad_new_h", grad_new_h), ("grad_new_cell", grad_new_cell)):
        if grad is not None:
            _check_like(op, name, grad, input, (batch, state), "[B, S]")
    check_needs(op, needs_input_grad, bias)


def check_sequence_backward(
    grad_output: Tensor | None,
    grad_h_n: Tensor | None,
    grad_c_n: Tensor | None,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    output: Tensor,
    cells: Tensor,
    gates: Tensor,
    alpha: float,
    needs_input_grad: Sequence[bool],
) -> None:
    """Raise RuntimeError if an argument of ``sequence_backward`` breaks the contract."""
    op = "sequence_backward"
    _check(op, "T, B", input, weights, bias, (("h0", h0), ("c0", c0)), alpha)
    steps, (batch, state) = input.shape[0], h0.shape
    _check_like(op, "output", output, input, (steps, batch, state), "[T, B, S]")
    _check_like(op, "cells", cells, input, (steps, batch, state), "[T, B, S]")
    _check_like(op, "gates", gates, input, (steps, batch, 3 * state), "[T, B, 3S]")
    if grad_output is not None:
        _check_like(op, "grad_output", grad_output, input, (steps, batch, state), "[T, B, S]")
    for name, grad in (("grad_h_n", grad_h_n), ("grad_c_n", grad_c_n)):
        if grad is not None:
            _check_like(op, name, grad, input, (batch, state), "[B, S]")
    check_needs(op, needs_input_grad, bias)


PACKED_STATES = 16
"""``pack`` pads S to a multiple of it, as ``csrc/host/stream.h`` does."""


def _packed_like(input: Tensor, rows: int, columns: int) -> tuple[int, torch.dtype]:
    """Size and dtype of what ``pack`` makes of weights ``[rows, columns]``."""
    padded = (rows // 3 + PACKED_STATES - 1) // PACKED_STATES * PACKED_STATES
    narrow = input.dtype in (torch.bfloat16, torch.float16)
    return padded * 3 * columns, torch.float32 if narrow else input.dtype


def check_pack(weights: Tensor) -> tuple[int, torch.dtype]:
    """Raise RuntimeError if weights are not ``[3S, S + F]``; the packed size and dtype if so."""
    _check_tensor("pack", "weights", weights, None)
    shape = weights.shape
    _require(
        len(shape) == 2 and shape[0] % 3 == 0 and shape[1] >= shape[0] // 3,
        f"lltm::pack: weights must have shape [3S, S + F], got {list(shape)}",
    )
    return _packed_like(weights, *shape)


def check_stream_step(
    input: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    cell: Tensor,
    new_h: Tensor,
    alpha: float = 1.0,
) -> None:
    """Raise RuntimeError if an argument of ``stream_step`` breaks the contract.

    Which memory the tensors share is not seen from here.
    """
    op = "stream_step"
    _check(op, "B", input, None, bias, (("old_h", old_h), ("cell", cell)), alpha)
    _check_like(op, "new_h", new_h, input, tuple(old_h.shape), "[B, S]")
    for name, written in (("cell", cell), ("new_h", new_h)):
        _require(
            written.is_contiguous(),
            f"lltm::{op}: {name} is written in place and must be contiguous, got one that is not",
        )
    state, features = old_h.shape[1], input.shape[1]
    elements, dtype = _packed_like(input, 3 * state, state + features)
    _require(
        packed.dtype == dtype
        and packed.device == input.device
        and packed.shape == (elements,)
        and packed.is_contiguous(),
        f"lltm::{op}: packed must be what lltm::pack made of weights [3S, S + F], {elements} "
        f"elements on {input.device}, got {list(packed.shape)} of dtype {packed.dtype} on "
        f"{packed.device}",
    )
