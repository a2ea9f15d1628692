"""What the modules of a cell check, and have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Size, Tensor, nn

from lltm import _dispatch, contract
from lltm.cells._definition import Definition, check_cell


def reset_parameters(module: nn.Module, state_size: int) -> None:
    """Draw every parameter from U(-1/sqrt(S), 1/sqrt(S)), as nn.LSTM does."""
    bound = 1.0 / math.sqrt(state_size)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -bound, bound)


def parameters_of(module: nn.Module, names: Iterable[str]) -> list[Any]:
    """A module's parameters, past ``nn.Module``'s search, which takes a tenth of a small call.

    What a parametrization, say, has put in the place of one is found the usual way.
    """
    own = module._parameters
    return [own[name] if name in own else getattr(module, name) for name in names]


def check_sizes(cell: Definition, input_features: int, state_size: int) -> None:
    check_cell(cell)
    contract.check_size("input_features", input_features)
    contract.check_size("state_size", state_size)
    if state_size % cell.heads:
        raise ValueError(
            f"state_size must be a multiple of the cell's heads, {cell.heads}, got {state_size}"
        )


def describe_sizes(cell: Definition, input_features: int, state_size: int) -> list[str]:
    heads = [f"heads={cell.heads}"] if cell.heads > 1 else []
    return [cell.name, str(input_features), str(state_size), *heads]


def state_name(index: int) -> str:
    """What messages call a state."""
    return f"state {index}" if index else "h"


def _no_states(name: str, cell: Definition, states: object) -> TypeError:
    return TypeError(
        f"{name} must be a tuple of the cell's {cell.states} states, a Tensor each, got "
        f"{contract.describe(states)}"
    )


def check_states(
    name: str,
    cell: Definition,
    states: object,
    shapes: Sequence[tuple[int, ...]],
    input: Tensor,
) -> None:
    """Raise TypeError for what is no tuple of the cell's states, RuntimeError for what is in it.

    The op would see one tensor made of all, which torch promotes where their dtypes differ.

    Args:
        name: what the module calls them.
        cell: whose they are.
        states: what the module was called with.
        shapes: of each.
        input: whose device they must be on, and whose dtype they must have unless autocast is on.
    """
    if not isinstance(states, (tuple, list)) or len(states) != cell.states:
        raise _no_states(name, cell, states)
    for index, (state, shape) in enumerate(zip(states, shapes, strict=True)):
        if not isinstance(state, Tensor):
            raise _no_states(name, cell, states)
        if problem := _misfit(state, shape, input):
            raise RuntimeError(f"{name}: {state_name(index)} must {problem}")


def _misfit(state: Tensor, shape: tuple[int, ...], input: Tensor) -> str:
    """What a state must be and is not, if anything."""
    if (layout := contract.layout_of(state)) != torch.strided:
        return f"be a dense tensor (strided), got {layout}"
    if state.shape != shape:
        return f"have shape {list(shape)}, got {list(state.shape)}"
    if state.device != input.device:
        return f"be on the device of input, {input.device}, got {state.device}"
    if state.dtype != input.dtype and not _dispatch.casts(input.device.type):
        return f"have the dtype of input, {input.dtype}, got {state.dtype}"
    return ""


def check_input(input: object, size: str, features: int, batch_first: bool) -> None:
    """Raise TypeError for what is no tensor, RuntimeError for a shape or layout that does not fit.

    Args:
        input: what a module over sequences was called with, but a packed batch.
        size: what the module calls ``F``.
        features: ``F``.
        batch_first: of the module.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a Tensor or a PackedSequence, got {type(input).__name__}")
    if input.dim() not in (2, 3):
        batch = "[B, T, F]" if batch_first else "[T, B, F]"
        raise RuntimeError(
            f"input must have shape {batch}, or [T, F] unbatched, got {list(input.shape)}"
        )
    contract.check_module_input(input, size, features)


def check_reset(reset: object, shape: Size) -> None:
    """Raise TypeError for what is no tensor, RuntimeError for another shape than the input's."""
    if not isinstance(reset, Tensor):
        raise TypeError(f"reset must be a Tensor, got {type(reset).__name__}")
    if reset.shape != shape:
        raise RuntimeError(
            f"reset must have the shape of input without its features, {list(shape)}, got "
            f"{list(reset.shape)}"
        )
