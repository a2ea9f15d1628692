"""What the gradients of a cell's sequence are to some twenty digits.

No derivative is written down: the step is elementwise, so that two calls with one of its arguments
moved by 2^-80 give it; what joins the steps is products.
"""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2
import numpy as np
from cells_oracle import Layer, same_head
from oracle import Exact, Numbers, as_exact, as_numbers, digits
from torch import Tensor

from lltm.cells import Definition
from lltm.cells._contract import Arguments

MOVED = gmpy2.mpfr(2) ** -80


def gradients(cell: Definition, arguments: Arguments, seeds: Sequence[Tensor]) -> list[Exact]:
    """Of the input, the weights, the bias and the states, of arguments without resets.

    Args:
        cell: its definition.
        arguments: where.
        seeds: gradients of the output and of the last states.
    """
    with digits():
        layer = Layer.of(cell, arguments)
        xs, states = as_numbers(arguments.input), as_numbers(arguments.states)
        steps = []
        for x in xs:
            steps.append(layer.before(x, states))
            states = layer.advance(steps[-1])
        d_outputs, d_states = map(as_numbers, seeds)
        d_xs, d_weights, d_bias = [], 0, 0
        for x, step, d_output in reversed(list(zip(xs, steps, d_outputs, strict=True))):
            d_states[0] += d_output
            d_step = _pulled_back(layer, step, d_states)
            d_x, d_states, d_z = _spread(layer, d_step)
            d_xs.insert(0, d_x)
            d_weights += _d_weights(layer, d_z, x, step[cell.pre_activations])
            d_bias += d_z.sum(axis=0)
        return [as_exact(each) for each in (np.stack(d_xs), d_weights, d_bias, d_states)]


def _pulled_back(layer: Layer, step: Numbers, d_states: Numbers) -> Numbers:
    """The gradient of a step's arguments, from that of the new states."""
    here = layer.advance(step)
    found = np.empty_like(step)
    for index in range(len(step)):
        moved = np.zeros_like(step)
        moved[index] = MOVED
        apart = layer.advance(step + moved) - here
        found[index] = (apart / MOVED * d_states).sum(axis=0)
    return found


def _spread(layer: Layer, d_step: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """To the input, the old states and the pre-activations ``[B, P * S]``."""
    pre = layer.cell.pre_activations
    d_z = d_step[:pre].swapaxes(0, 1).reshape(d_step.shape[1], -1)
    rows = len(layer.of_input)
    d_states = d_step[pre:]
    d_states[0] += d_z[:, -rows:] @ layer.recurrent
    return d_z[:, :rows] @ layer.of_input, d_states, d_z


def _d_weights(layer: Layer, d_z: Numbers, x: Numbers, h: Numbers) -> Numbers:
    """What a step adds to the gradient of the weights."""
    rows, state = layer.recurrent.shape
    width = state // layer.cell.heads
    recurrent = (d_z[:, -rows:].T @ h) * same_head(rows, state, width)
    blocks = recurrent.reshape(rows, layer.cell.heads, width).sum(axis=1)
    return np.concatenate([blocks, d_z[:, :rows].T @ x], axis=1)
