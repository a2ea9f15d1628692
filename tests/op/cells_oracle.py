"""What a cell's sequence is to 50 digits: its step on mpmath's numbers in the place of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import torch
from oracle import DIGITS, Exact, Row
from torch import Tensor

from lltm.cells import Definition
from lltm.cells._contract import Arguments

Numbers = npt.NDArray[np.object_]
"""Of mpmath."""


def _log_sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return -mpmath.log1p(mpmath.exp(-x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "exp": mpmath.exp,
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "elu": lambda x, alpha=1.0, **_: x if x > 0 else alpha * mpmath.expm1(x),
    "log_sigmoid": _log_sigmoid,
    "maximum": max,
    "where": lambda condition, x, y: x if condition else y,
}
"""By what torch calls them."""


@dataclass(frozen=True)
class Digits:
    """Numbers that a step takes for a tensor."""

    values: list[Any]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Digits:
        return cls._each(FUNCTIONS[func.__name__], *args, **(kwargs or {}))

    @classmethod
    def _each(cls, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Digits:
        count = next(len(each.values) for each in args if isinstance(each, Digits))
        columns = [each.values if isinstance(each, Digits) else [each] * count for each in args]
        return Digits([function(*row, **kwargs) for row in zip(*columns, strict=True)])

    def __add__(self, other: Any) -> Digits:
        return self._each(operator.add, self, other)

    def __sub__(self, other: Any) -> Digits:
        return self._each(operator.sub, self, other)

    def __mul__(self, other: Any) -> Digits:
        return self._each(operator.mul, self, other)

    def __truediv__(self, other: Any) -> Digits:
        return self._each(operator.truediv, self, other)

    def __gt__(self, other: Any) -> Digits:
        return self._each(operator.gt, self, other)

    __radd__, __rmul__ = __add__, __mul__


def sequence(cell: Definition, arguments: Arguments) -> tuple[Exact, Exact]:
    """Output and last states, of arguments without resets."""
    with mpmath.workdps(DIGITS):
        layer = Layer.of(cell, arguments)
        states, outputs = as_numbers(arguments.states), []
        for x in as_numbers(arguments.input):
            states = layer.advance(layer.before(x, states))
            outputs.append(states[0])
        return as_exact(np.stack(outputs)), as_exact(states)


def as_numbers(tensor: Tensor) -> Numbers:
    return np.vectorize(mpmath.mpf, otypes=[object])(tensor.detach().double().numpy())


def as_exact(values: Numbers) -> Exact:
    value = values.astype(np.float64)
    return Exact(torch.from_numpy(value), torch.from_numpy((values - value).astype(np.float64)))


def product(left: Numbers, right: Numbers) -> Numbers:
    """The matrix product."""
    rows, columns = ([Row.of(list(each)) for each in matrix] for matrix in (left, right.T))
    return np.array([[row @ column for column in columns] for row in rows])


@dataclass(frozen=True)
class Layer:
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
    def of(cell: Definition, arguments: Arguments) -> Layer:
        assert arguments.bias is not None
        state = arguments.states.shape[2]
        width = state // cell.heads
        weights = as_numbers(arguments.weights)
        recurrent = weights[:, :width]
        return Layer(
            cell=cell,
            scalars=dict(zip(dict(cell.scalars), arguments.scalars, strict=True)),
            recurrent=np.tile(recurrent, cell.heads) * same_head(len(weights), state, width),
            of_input=weights[:, width:],
            bias=as_numbers(arguments.bias),
        )

    def before(self, x: Numbers, states: Numbers) -> Numbers:
        """A step's arguments."""
        shares = [product(x, self.of_input.T), product(states[0], self.recurrent.T)]
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


def same_head(rows: int, state: int, width: int) -> npt.NDArray[np.int_]:
    """1 where a row of the weights and a column of the recurrent ones are of one head, else 0."""
    of_row, of_column = (np.arange(count) % state // width for count in (rows, state))
    return (of_row[:, None] == of_column).astype(int)
