"""Shapes, dtypes and devices of a sequence's arguments, for any cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lltm import _dispatch, contract
from lltm.cells._definition import Definition

OP = "cells.sequence"


def with_gradient_of_its_own(tensor: Tensor) -> Tensor:
    """``tensor``, of which autograd makes a gradient that is contiguous and shares no memory.

    That of one part of a concatenation is a view of the gradient of all, for which neither
    ``view`` nor ``torch.nn.utils.parameters_to_vector`` works; both summands of a sum have one.
    """
    if not _dispatch.is_recorded():
        return tensor
    (all_of_it,) = tensor.unsafe_chunk(1)  # the cheapest op whose derivative copies the gradient
    return all_of_it


class Arguments(NamedTuple):  # every call makes one, in half a dataclass's time
    """Of one layer in one direction, as the op takes them.

    Attributes:
        input: ``[T, B, F]``.
        weights: ``[G * S, S / heads + F]``; the first ``S / heads`` columns multiply ``h``.
        bias: ``[P * S]`` or ``None``.
        states: ``[N, B, S]``.
        scalars: a number for each of the definition's.
        reset: bool ``[T, B]`` or ``None``: where the states start again before the step.
        reset_state: ``[N, B, S]``, what they start from; ``None`` for zeros.
        input_weights: ``[G * S, F]`` where they are apart, and ``weights`` the other columns alone;
            else ``None``.
    """

    input: Tensor
    weights: Tensor
    bias: Tensor | None
    states: Tensor
    scalars: Sequence[float]
    reset: Tensor | None = None
    reset_state: Tensor | None = None
    input_weights: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Those that ``sequence_backward`` has a gradient for."""
        return self.input, self.weights, self.bias, self.states, self.reset_state

    def joined(self) -> Arguments:
        """With all weights in one tensor, as ``sequence_backward`` takes them."""
        if self.input_weights is None:
            return self
        apart = (self.weights, self.input_weights)
        weights = torch.cat([with_gradient_of_its_own(each) for each in apart], dim=1)
        return self._replace(weights=weights, input_weights=None)

    def of_backward(self) -> tuple[Any, ...]:
        """Those that ``sequence_forward`` and ``sequence_backward`` have, too."""
        return self.joined()[:-1]

    def state_columns(self) -> int:
        """Columns of ``weights`` that multiply ``h``."""
        features = self.input.shape[-1] if self.input_weights is None else 0
        return self.weights.shape[-1] - features


# A message is made where it is needed alone: a compiler traces this with sizes that are symbols,
# of which it makes no text.


def _error(message: str) -> RuntimeError:
    return RuntimeError(f"{OP}: {message}")


def check(definition: Definition, arguments: Arguments) -> None:
    """Raise RuntimeError if an argument's rank, size, dtype or device does not fit."""
    input, states = arguments.input, arguments.states
    if input.dim() != 3:
        raise _error(f"input must have shape [T, B, F], got {list(input.shape)}")
    if input.dtype not in contract.DTYPES:
        raise _error(f"input must be float32, float64, bfloat16 or float16, got {input.dtype}")
    if states.dim() != 3 or states.shape[:2] != (definition.states, input.shape[1]):
        raise _error(
            f"states must have shape [N, B, S] with N = {definition.states} and "
            f"B = {input.shape[1]}, got {list(states.shape)}"
        )
    state, heads = states.shape[2], definition.heads
    if state % heads:
        raise _error(f"S = {state} must be a multiple of heads = {heads}")
    like = input.dtype, input.device
    _check_weights(definition, arguments, like)
    bias = (definition.pre_activations * state,)
    _check_tensor("bias", arguments.bias, like, bias, "[P * S]")
    _check_tensor("states", states, like, states.shape, "[N, B, S]")
    _check_tensor("reset_state", arguments.reset_state, like, states.shape, "[N, B, S]")
    _check_reset(arguments)


def _check_weights(
    definition: Definition, arguments: Arguments, like: tuple[torch.dtype, torch.device]
) -> None:
    features, state = arguments.input.shape[2], arguments.states.shape[2]
    rows, columns = definition.gates * state, state // definition.heads
    if arguments.input_weights is None:
        shape, terms = (rows, columns + features), "[G * S, S / heads + F]"
    else:
        shape, terms = (rows, columns), "[G * S, S / heads]"
    _check_tensor("weights", arguments.weights, like, shape, terms)
    apart = (rows, features)
    _check_tensor("input_weights", arguments.input_weights, like, apart, "[G * S, F]")


def has_its_heads(definition: Definition, arguments: Arguments) -> bool:
    """Whether the weights have the columns of the definition's heads, and ``reset_state`` a use.

    The ops check the rest by themselves: they are for any number of heads.
    """
    if arguments.reset_state is not None and arguments.reset is None:
        return False
    head = arguments.states.shape[-1] // definition.heads
    return arguments.state_columns() == head


def check_backward(
    definition: Definition,
    arguments: Arguments,
    kept: int,
    grads: Sequence[Tensor | None],
    saved: Sequence[Tensor],
    needs: Sequence[bool],
) -> None:
    """Raise RuntimeError if what ``sequence_backward`` has beside checked arguments does not fit.

    Args:
        definition: of the cell.
        arguments: which :func:`check` has accepted.
        kept: values that a step saves for each of the states' elements.
        grads: those of output ``[T, B, S]`` and of last ``[N, B, S]``.
        saved: output, states_all and saved, as ``sequence_forward`` returned them.
        needs: which gradients are computed.
    """
    input = arguments.input
    steps, (count, batch, state) = input.shape[0], arguments.states.shape
    for name, tensor, shape, terms in (
        ("grad_output", grads[0], (steps, batch, state), "[T, B, S]"),
        ("grad_last", grads[1], (count, batch, state), "[N, B, S]"),
        ("output", saved[0], (steps, batch, state), "[T, B, S]"),
        ("states_all", saved[1], (steps, count - 1, batch, state), "[T, N - 1, B, S]"),
        ("saved", saved[2], (steps, batch, kept * state), f"[T, B, {kept}S]"),
    ):
        _check_tensor(name, tensor, (input.dtype, input.device), shape, terms)
    tensors = arguments.tensors()
    if len(needs) != len(tensors):
        raise _error(f"needs_input_grad must have {len(tensors)} entries, got {len(needs)}")


def _check_tensor(
    name: str,
    tensor: Tensor | None,
    like: tuple[torch.dtype, torch.device],
    shape: Sequence[int],
    terms: str,
) -> None:
    if tensor is None:
        return
    dtype, device = like
    if tuple(tensor.shape) != tuple(shape):
        raise _error(f"{name} must have shape {terms} = {list(shape)}, got {list(tensor.shape)}")
    if tensor.dtype != dtype:
        raise _error(f"{name} must have the dtype of input, {dtype}, got {tensor.dtype}")
    if tensor.device != device:
        raise _error(f"{name} must be on the device of input, {device}, got {tensor.device}")


def _check_reset(arguments: Arguments) -> None:
    reset, input = arguments.reset, arguments.input
    if reset is None:
        if arguments.reset_state is not None:
            raise _error("reset_state needs reset, which is None")
        return
    if reset.dtype != torch.bool or reset.dim() != 2 or reset.shape != input.shape[:2]:
        raise _error(
            f"reset must be bool of shape [T, B] = {list(input.shape[:2])}, got {reset.dtype} "
            f"{list(reset.shape)}"
        )
    if reset.device != input.device:
        raise _error(f"reset must be on the device of input, {input.device}, got {reset.device}")
