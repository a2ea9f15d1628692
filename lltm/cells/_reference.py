"""A sequence in plain PyTorch, with the step that its author wrote: what correct means."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition


def recurrent_share(h: Tensor, weights: Tensor, gates: int, heads: int) -> Tensor:
    """``h [B, S]`` times the weights' first ``S / heads`` columns, to ``[B, G * S]``."""
    if heads == 1:
        return F.linear(h, weights)
    size = weights.shape[1]
    blocks = weights.view(gates, heads, size, size)
    product = torch.einsum("bkc,gkrc->bgkr", h.unflatten(1, (heads, size)), blocks)
    return product.flatten(1)


def sequence(definition: Definition, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Run the step over time.

    Returns:
        The hidden states ``[T, B, S]`` and the last states ``[N, B, S]``.
    """
    input, states = arguments.input, arguments.states
    width = states.shape[2] // definition.heads
    input_share, hidden_bias = _input_share(definition, arguments, width)
    weights = arguments.weights[:, :width]  # all, where the input's are apart
    state = states.unbind(0)
    outputs = []
    for step in range(input.shape[0]):
        if arguments.reset is not None:
            state = _reset(state, arguments.reset[step], arguments.reset_state)
        share = recurrent_share(state[0], weights, definition.gates, definition.heads)
        if hidden_bias is not None:
            share = share + hidden_bias
        z_input = input_share[step]
        z = torch.cat([z_input, share], 1) if definition.split else z_input + share
        gates = z.chunk(definition.pre_activations, dim=1)
        state = definition.advance(gates, state, arguments.scalars)
        outputs.append(state[0])
    if not outputs:
        return input.new_empty((0, *states.shape[1:])), states.clone()
    return torch.stack(outputs), torch.stack(state)


def _input_share(
    definition: Definition, arguments: Arguments, width: int
) -> tuple[Tensor, Tensor | None]:
    """The input's product with its weights for all steps, and the recurrent share's own bias."""
    bias, hidden_bias = arguments.bias, None
    if bias is not None and definition.split:
        bias, hidden_bias = bias.chunk(2)
    weights = arguments.input_weights
    if weights is None:
        weights = arguments.weights[:, width:]
    return F.linear(arguments.input, weights, bias), hidden_bias


def _reset(
    state: Sequence[Tensor], reset: Tensor, reset_state: Tensor | None
) -> tuple[Tensor, ...]:
    start = [torch.zeros_like(part) for part in state] if reset_state is None else reset_state
    rows = reset.unsqueeze(1)
    return tuple(torch.where(rows, new, part) for new, part in zip(start, state, strict=True))
