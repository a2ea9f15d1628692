"""What the gradients of a cell's sequence are to some thirty digits.

No derivative is written down: the step is elementwise, so that two calls with one of its arguments
moved by 1e-20 give it; what joins the steps is products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
import numpy.typing as npt
import torch
from cells_oracle import Digits
from oracle import DIGITS, Exact
from torch import Tensor

from lltm.cells import Definition
from lltm.cells._contract import Arguments

Numbers = npt.NDArray[np.object_]
"""Of mpmath."""
MOVED = mpmath.mpf(10) ** -20


def gradients(cell: Definition, arguments: Arguments, seeds: Sequence[Tensor]) -> list[Exact]:
    """Of the input, the weights, the bias and the states, of arguments without resets.

    Args:
        cell: its definition.
        arguments: where.
        seeds: gradients of the output and of the last states.
    """
    with mpmath.workdps(DIGITS):
        layer = _Layer.of(cell, arguments)
        xs, states = _numbers(arguments.input), _numbers(arguments.states)
        steps = []
        for x in xs:
            steps.append(layer.before(x, states))
            states = layer.advance(steps[-1])
        d_outputs, d_states = map(_numbers, seeds)
        d_xs, d_weights, d_bias = [], 0, 0
        for x, step, d_output in reversed(list(zip(xs, steps, d_outputs, strict=True))):
            d_states[0] += d_output
            d_step = layer.pulled_back(step, d_states)
            d_x, d_states, d_z = layer.spread(d_step)
            d_xs.insert(0, d_x)
            d_weights += layer.d_weights(d_z, x, step[cell.pre_activations])
            d_bias += d_z.sum(axis=0)
        return [_exact(each) for each in (np.stack(d_xs), d_weights, d_bias, d_states)]


def _numbers(tensor: Tensor) -> Numbers:
    return np.vectorize(mpmath.mpf, otypes=[object])(tensor.detach().double().numpy())


def _exact(numbers: Numbers) -> Exact:
    value = numbers.astype(np.float64)
    return Exact(torch.from_numpy(value), torch.from_numpy((numbers - value).astype(np.float64)))


@dataclass(frozen=True)
class _Layer:
    """A cell with its parameters; ``step`` is all of a step's arguments, ``[P + N, B, S]``.

    Attributes:
        cell: its definition.
        scalars: of the step.
        recurrent: ``[G * S, S]``, zero between heads.
        of_input: ``[G * S, F]``.
        bias: ``[P * S]``.
    """

    cell: Definition
    scalars: dict[str, float]
    recurrent: Numbers
    of_input: Numbers
    bias: Numbers

    @staticmethod
    def of(cell: Definition, arguments: Arguments) -> _Layer:
        assert arguments.bias is not None
        state = arguments.states.shape[2]
        width = state // cell.heads
        weights = _numbers(arguments.weights)
        recurrent = weights[:, :width]
        return _Layer(
            cell=cell,
            scalars=dict(zip(dict(cell.scalars), arguments.scalars, strict=True)),
            recurrent=np.tile(recurrent, cell.heads) * _same_head(len(weights), state, width),
            of_input=weights[:, width:],
            bias=_numbers(arguments.bias),
        )

    def before(self, x: Numbers, states: Numbers) -> Numbers:
        """A step's arguments."""
        shares = [x @ self.of_input.T, states[0] @ self.recurrent.T]
        z = np.concatenate(shares, 1) if self.cell.split else shares[0] + shares[1]
        pre = (z + self.bias).reshape(len(x), self.cell.pre_activations, -1)
        return np.concatenate([pre.swapaxes(0, 1), states])

    def advance(self, step: Numbers) -> Numbers:
        """The new states."""
        cell = self.cell
        each = tuple(Digits(list(values.flat)) for values in step)
        z, states = each[: cell.pre_activations], each[cell.pre_activations :]
        shares = (z[at : at + cell.gates] for at in range(0, len(z), cell.gates))
        new = cell.step(*shares, states, **self.scalars)
        return np.array([state.values for state in new]).reshape(-1, *step.shape[1:])

    def pulled_back(self, step: Numbers, d_states: Numbers) -> Numbers:
        """The gradient of a step's arguments, from that of the new states."""
        found = np.empty_like(step)
        for index in range(len(step)):
            moved = np.zeros_like(step)
            moved[index] = MOVED
            apart = self.advance(step + moved) - self.advance(step - moved)
            found[index] = (apart / (2 * MOVED) * d_states).sum(axis=0)
        return found

    def spread(self, d_step: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """To the input, the old states and the pre-activations ``[B, P * S]``."""
        pre = self.cell.pre_activations
        d_z = d_step[:pre].swapaxes(0, 1).reshape(d_step.shape[1], -1)
        rows = len(self.of_input)
        d_states = d_step[pre:]
        d_states[0] += d_z[:, -rows:] @ self.recurrent
        return d_z[:, :rows] @ self.of_input, d_states, d_z

    def d_weights(self, d_z: Numbers, x: Numbers, h: Numbers) -> Numbers:
        """What a step adds to the gradient of the weights."""
        rows, state = self.recurrent.shape
        width = state // self.cell.heads
        recurrent = (d_z[:, -rows:].T @ h) * _same_head(rows, state, width)
        blocks = recurrent.reshape(rows, self.cell.heads, width).sum(axis=1)
        return np.concatenate([blocks, d_z[:, :rows].T @ x], axis=1)


def _same_head(rows: int, state: int, width: int) -> npt.NDArray[np.int_]:
    """1 where a row of the weights and a column of the recurrent ones are of one head, else 0."""
    of_row, of_column = (np.arange(count) % state // width for count in (rows, state))
    return (of_row[:, None] == of_column).astype(int)
