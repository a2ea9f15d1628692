"""What a cell's sequence is to 50 digits: its step on MPFR's numbers in the place of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt
from oracle import Exact, Numbers, as_exact, as_numbers, digits, elu, sigmoid, softplus

from lltm.cells import Definition
from lltm.cells._contract import Arguments

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sigmoid": sigmoid,
    "tanh": gmpy2.tanh,
    "exp": gmpy2.exp,
    "relu": lambda x: max(x, gmpy2.mpfr(0)),
    "elu": elu,
    "log_sigmoid": lambda x: -softplus(-x),
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
    with digits():
        layer = Layer.of(cell, arguments)
        states, outputs = as_numbers(arguments.states), []
        for x in as_numbers(arguments.input):
            states = layer.advance(layer.before(x, states))
            outputs.append(states[0])
        return as_exact(np.stack(outputs)), as_exact(states)


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


def same_head(rows: int, state: int, width: int) -> npt.NDArray[np.int_]:
    """1 where a row of the weights and a column of the recurrent ones are of one head, else 0."""
    of_row, of_column = (np.arange(count) % state // width for count in (rows, state))
    return (of_row[:, None] == of_column).astype(int)
