"""What the modules of a cell check, and have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Size, Tensor, nn

from lltm import contract
from lltm.cells._definition import Definition, check_cell, state_names


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


def _no_states(name: str, cell: Definition, states: object) -> TypeError:
    return TypeError(
        f"{name} must be a tuple of the cell's {cell.states} states, a Tensor each, got "
        f"{contract.describe(states)}"
    )


def check_states(
    name: str, cell: Definition, states: object, shapes: Sequence[tuple[int, ...]]
) -> None:
    """Raise TypeError for what is no tuple of the cell's states, RuntimeError for their shapes."""
    if not isinstance(states, (tuple, list)) or len(states) != cell.states:
        raise _no_states(name, cell, states)
    for state, part, shape in zip(state_names(cell.states), states, shapes, strict=True):
        if not isinstance(part, Tensor):
            raise _no_states(name, cell, states)
        if part.shape != shape:
            raise RuntimeError(
                f"{name}: {state} must have shape {list(shape)}, got {list(part.shape)}"
            )


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
