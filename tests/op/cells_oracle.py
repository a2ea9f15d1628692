"""What a cell's sequence is to 50 digits: its step on mpmath's numbers in the place of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from oracle import DIGITS, Exact, Row, as_exact

from lltm.cells import Definition
from lltm.cells._contract import Arguments

Numbers = list[Any]


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

    values: Numbers

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
    named = dict(zip(dict(cell.scalars), arguments.scalars, strict=True))
    with mpmath.workdps(DIGITS):
        weights = _Weights.of(cell, arguments)
        states: list[list[Numbers]] = arguments.states.tolist()
        outputs = []
        for step in arguments.input.tolist():
            rows = []
            for at, (h, x) in enumerate(zip(states[0], step, strict=True)):
                of_row = tuple(Digits(state[at]) for state in states)
                rows.append(cell.step(*weights.shares(h, x), of_row, **named))
            states = [[row[which].values for row in rows] for which in range(cell.states)]
            outputs.append(states[0])
    return tuple(_stacked([as_exact(each) for each in parts]) for parts in (outputs, states))


def _stacked(parts: Sequence[Exact]) -> Exact:
    value, low = ([torch.as_tensor(getattr(each, of)) for each in parts] for of in ("value", "low"))
    return Exact(torch.stack(value), torch.stack(low))


@dataclass(frozen=True)
class _Weights:
    """The rows of the recurrent share and of the input's, and the bias of each pre-activation."""

    cell: Definition
    recurrent: list[Row]
    of_input: list[Row]
    bias: Numbers
    width: int

    @staticmethod
    def of(cell: Definition, arguments: Arguments) -> _Weights:
        assert arguments.bias is not None
        width = arguments.states.shape[2] // cell.heads
        recurrent, of_input = arguments.weights.tensor_split([width], dim=1)
        rows = ([Row.of(row) for row in part.tolist()] for part in (recurrent, of_input))
        return _Weights(cell, *rows, arguments.bias.tolist(), width)

    def shares(self, h: Numbers, x: Numbers) -> list[tuple[Digits, ...]]:
        """The step's arguments before the states."""
        cell, width = self.cell, self.width
        heads = [Row.of(h[at : at + width]) for at in range(0, len(h), width)]
        recurrent = [row @ heads[at // width % cell.heads] for at, row in enumerate(self.recurrent)]
        input = Row.of(x)
        z = [row @ input + bias for row, bias in zip(self.of_input, self.bias, strict=False)]
        if cell.split:
            other = self.bias[len(z) :]
            recurrent = [a + b for a, b in zip(recurrent, other, strict=True)]
            return [self._gates(z), self._gates(recurrent)]
        return [self._gates([a + b for a, b in zip(z, recurrent, strict=True)])]

    def _gates(self, z: Numbers) -> tuple[Digits, ...]:
        size = len(z) // self.cell.gates
        return tuple(Digits(z[at : at + size]) for at in range(0, len(z), size))
