"""One step by a sequence's kernels, as a single node of autograd's graph.

Stacking the states, the sequence's op and taking its last states apart are a call each, on
autograd's way; for a small step that is half of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lltm import _dispatch

States = tuple[Tensor, ...]
"""One tensor a state, the hidden state first."""


class StepArguments(NamedTuple):  # as Arguments are
    """Of one step.

    Attributes:
        input: ``[B, F]``.
        weights: ``[G * S, S / heads + F]``.
        bias: ``[P * S]`` or ``None``.
        states: one ``[B, S]`` tensor each, or none for zeros.
        scalars: a number for each of the definition's.
        shape: ``N, B, S``.
    """

    input: Tensor
    weights: Tensor
    bias: Tensor | None
    states: Sequence[Tensor]
    scalars: Sequence[float]
    shape: Sequence[int]

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Those that can have a gradient."""
        return self.input, self.weights, self.bias, *self.states


@dataclass(frozen=True)
class StepOps:
    """What a step calls of a sequence's ops.

    Attributes:
        sequence: for a step without a gradient.
        forward: what saves for backward.
        backward: can be differentiated itself.
    """

    sequence: Callable[..., tuple[Tensor, ...]]
    forward: Callable[..., tuple[Tensor, ...]]
    backward: Callable[..., tuple[Tensor, ...]]

    @staticmethod
    def of(namespace: str) -> StepOps:
        """Those that a library has defined there."""
        of = getattr(torch.ops, namespace)
        backward = _dispatch.direct(of.sequence_backward.default)
        return StepOps(of.sequence.default, of.sequence_forward.default, backward)


class _Function(torch.autograd.Function):
    """Reverse mode through the kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        of: StepOps,
        scalars: Sequence[float],
        shape: Sequence[int],
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        *states: Tensor,
    ) -> States:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            first = _stacked(states, input, shape)
            results = of.forward(input.unsqueeze(0), weights, bias, first, scalars)
            output, last, states_all, saved = results
            new: States = last.unbind()
        ctx.of, ctx.scalars = of, scalars
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(first, output, states_all, saved, input, weights, bias, *states)
        return new

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: a checkpoint computes them for one look
        first, *kernels, input, weights, bias = saved[:7]
        states = saved[7:]
        edges = iter(ctx.next_functions)
        arguments = (input, weights, bias, *states)
        asked = [_dispatch.is_asked_for(tensor, edges) for tensor in arguments]
        needs = [*asked[:3], any(asked[3:]), False]
        if torch.is_grad_enabled() and states:
            first = torch.stack(states)  # what is differentiated again
        given = (input.unsqueeze(0), weights, bias, first, ctx.scalars, None, None)
        d = ctx.of.backward(*_gradients_of_results(grads, first), *given, *kernels, needs)
        d_states = d[3].unbind() if needs[3] else states
        every = (d[0].squeeze(0), *d[1:3], *d_states)
        wanted = (each if is_asked else None for each, is_asked in zip(every, asked, strict=True))
        return None, None, None, *wanted


def _gradients_of_results(
    grads: Sequence[Tensor | None], first: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Of a sequence's output ``[1, B, S]`` and last states ``[N, B, S]``: of h alone the former."""
    h, *others = grads
    if all(each is None for each in others):
        return None if h is None else h.unsqueeze(0), None
    full = [
        torch.zeros_like(of) if each is None else each
        for each, of in zip(grads, first, strict=True)
    ]
    return None, torch.stack(full)


_apply = _dispatch.single_level(_Function)


def _stacked(states: Sequence[Tensor], input: Tensor, shape: Sequence[int]) -> Tensor:
    """``[N, B, S]``, zeros of ``input``'s kind where there are no states.

    Raises:
        TypeError: a state has another dtype than ``input``; torch would promote it.
    """
    if not states:
        return input.new_zeros(shape)
    first, dtype = torch.stack(tuple(states)), input.dtype
    for state in states:
        if state.dtype is not dtype:
            raise TypeError(f"states must have the dtype of input, {dtype}, got {state.dtype}")
    return first


def step(of: StepOps, arguments: StepArguments) -> States:
    """The new states, where autograd alone has a say in it (:func:`lltm._dispatch.is_plain`).

    They share memory and are no views to autograd: each can be detached and written in place.
    """
    tensors = arguments.tensors()
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors):
        reverse: States = _apply(of, arguments.scalars, arguments.shape, *tensors)
        return reverse
    input, weights, bias, states, scalars, shape = arguments
    with torch._C._AutoDispatchBelowADInplaceOrView():
        first = _stacked(states, input, shape)
        _, last = of.sequence(input.unsqueeze(0), weights, bias, first, scalars)
        new: States = last.unbind()
        return new
