"""How a module's parameters and states are laid out, and what the ops take in their place."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional as F

from lltm.cells._contract import with_gradient_of_its_own
from lltm.cells._definition import Definition
from lltm.cells._layers import Layer, projected
from lltm.cells._run import run
from lltm.cells._step import States

Weights = tuple[Tensor, Tensor | None, Tensor | None]
"""Weights, bias and input_weights of one layer in one direction; see Arguments."""
Shapes = dict[str, tuple[int, ...] | None]
"""Of the parameters of one layer in one direction, by name; None for one left out."""


class Layout:
    """A weight and a bias as the ops take them, and states of ``S`` elements."""

    def shapes(self, cell: Definition, features: int, state_size: int, bias: bool) -> Shapes:
        """Of the parameters of a layer whose input has so many features."""
        return {
            "weight": (cell.gates * state_size, state_size // cell.heads + features),
            "bias": (cell.pre_activations * state_size,) if bias else None,
        }

    def layer(self, cell: Definition, parameters: Sequence[Tensor]) -> tuple[Layer, Weights]:
        """What computes the layer with these parameters, in the order of :meth:`shapes`."""
        weights, bias = parameters
        return functools.partial(run, cell), (weights, bias, None)

    def state_sizes(self, cell: Definition, state_size: int) -> tuple[int, ...]:
        """Elements of a row of each of the module's states, the hidden state first."""
        return (state_size,) * cell.states

    def stacked(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        """``[L * D, B, S]`` of each state, as ``[N, B, S]`` of each layer and direction."""
        if states[0].shape[0] > 1:
            return torch.stack(tuple(states), 1).unbind()
        return (torch.cat(tuple(states)) if len(states) > 1 else states[0],)

    def unstacked(self, last: Sequence[Tensor]) -> States:
        """``[N, B, S]`` of each layer and direction, as ``[L * D, B, S]`` of each state."""
        if len(last) > 1:
            # Not one stack that is flattened: torch 2.10 cannot export that for any batch size.
            by_state = zip(*(each.unbind() for each in last), strict=True)
            return _owned(torch.stack([*chain(*by_state)]), len(last))
        return _owned(last[0], 1) if last[0].shape[0] > 1 else (last[0],)


class LikeTorch(Layout):
    """The parameters of :class:`torch.nn.LSTM`, ``GRU`` and ``RNN``."""

    def shapes(self, cell: Definition, features: int, state_size: int, bias: bool) -> Shapes:
        """As torch's, by name, shape and order."""
        rows = cell.gates * state_size
        hidden, *_ = self.state_sizes(cell, state_size)
        shapes: Shapes = {"weight_ih": (rows, features), "weight_hh": (rows, hidden)}
        return {**shapes, "bias_ih": (rows,), "bias_hh": (rows,)} if bias else shapes

    def layer(self, cell: Definition, parameters: Sequence[Tensor]) -> tuple[Layer, Weights]:
        """The weights stay apart, the biases do not."""
        inputs, hidden, *biases = parameters
        return functools.partial(run, cell), (hidden, _joined(cell, biases), inputs)


@dataclass(frozen=True)
class Projected(LikeTorch):
    """As :class:`LikeTorch`, with a hidden state that each layer projects.

    Attributes:
        size: ``P``, elements of a row of the hidden state.
    """

    size: int

    def shapes(self, cell: Definition, features: int, state_size: int, bias: bool) -> Shapes:
        """The projection is the last."""
        shapes = super().shapes(cell, features, state_size, bias)
        return {**shapes, "weight_hr": (self.size, state_size)}

    def layer(self, cell: Definition, parameters: Sequence[Tensor]) -> tuple[Layer, Weights]:
        """As :func:`lltm.cells._layers.projected` takes the weights."""
        inputs, hidden, *biases, projection = parameters
        apart = [with_gradient_of_its_own(each) for each in (inputs, hidden)]
        weights = hidden @ projection, _joined(cell, biases), torch.cat(apart, 1)
        return functools.partial(projected, cell, projection), weights

    def state_sizes(self, cell: Definition, state_size: int) -> tuple[int, ...]:
        """``P, S``: of an LSTM."""
        return self.size, state_size

    def stacked(self, states: Sequence[Tensor]) -> Sequence[Tensor]:
        """The hidden state is filled up with zeros."""
        h, c = states
        return super().stacked((F.pad(h, (0, c.shape[-1] - self.size)), c))

    def unstacked(self, last: Sequence[Tensor]) -> States:
        """The hidden state is cut off where it ends."""
        h, c = super().unstacked(last)
        return h[..., : self.size].clone(), c


def _joined(cell: Definition, biases: Sequence[Tensor]) -> Tensor | None:
    """One bias of torch's two."""
    if not biases:
        return None
    inputs, hidden = biases
    if cell.split:
        return torch.cat((inputs, hidden))
    return inputs + with_gradient_of_its_own(hidden)


def _owned(states: Tensor, rows: int) -> States:
    """``[N * rows, ..]`` as ``[rows, ..]`` of each state.

    They share memory and are no views to autograd: each can be detached and written in place.
    """
    return tuple(states.unsafe_split(rows))
