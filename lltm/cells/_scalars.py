"""The numbers of a step that may change without compiling again, followed through Python."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lltm.cells._check import ELEMENTS, users_line
from lltm.cells._definition import Definition
from lltm.cells._errors import StepError

_EXACT_INTEGERS = 2.0**53
_LARGEST = 1e3
"""Of the numbers that stand for scalars: 1 - x is to be another number than -x."""


@dataclass
class Scalars:
    """The texts of a step's keyword arguments, and of what it computes from them, by value.

    torch hands an operation's numbers through C++, where nothing but the value survives; so each
    scalar gets a value of its own that nobody writes by hand.
    """

    texts: dict[float, str] = field(default_factory=dict)

    def number(self, value: float, text: str) -> Scalar:
        """A number that is known by its text, the first one that it got."""
        text = self.texts.setdefault(value, text)
        self.texts.setdefault(-value, f"-{text}")
        self.texts.setdefault(1 - value, f"(Scalar(1) - {text})")  # of lerp's derivative
        # torch has a float32 in celu's derivative.
        single = ctypes.c_float(value).value
        as_single = f"Scalar(static_cast<float>({text}))"
        for each, its_text in ((value, text), (single, as_single)):
            if each and math.isfinite(each):
                self.texts.setdefault(1 / each, f"(Scalar(1) / {its_text})")
        return Scalar(value, text, self)

    def text_of(self, value: float) -> str:
        """In C++."""
        if value in self.texts:
            return self.texts[value]
        if math.isnan(value):
            return 'Scalar(__builtin_nan(""))'
        if math.isinf(value):
            return f"Scalar({'-' if value < 0 else ''}__builtin_inf())"
        # An integer that C++ has a literal for, or it would be cut off without a word.
        whole = float(value).is_integer() and abs(value) < _EXACT_INTEGERS
        return f"Scalar({int(value) if whole else repr(float(value))})"


def _refusal(what_happens: str) -> Callable[..., Any]:
    def refuse(self: Scalar, *_: object) -> Any:
        raise StepError(
            f"{users_line()}: a scalar of the step is {what_happens}, so that another value could "
            f"take another path; choose with torch.where, or define a step for each"
        )

    return refuse


def _computed(symbol: str, operation: Callable[[float, float], float]) -> Iterator[Any]:
    """The method of an operator, then that of its right operand."""

    def method(self: Scalar, other: Any, *, reverse: bool = False) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        sides = [(float(self), self.text), (float(other), self.scalars.text_of(float(other)))]
        (first, left), (second, right) = reversed(sides) if reverse else sides
        return self.scalars.number(operation(first, second), f"({left} {symbol} {right})")

    yield method
    yield lambda self, other: method(self, other, reverse=True)


class Scalar(float):
    """A number that remembers what it was computed from."""

    def __new__(cls, value: float, text: str, scalars: Scalars) -> Scalar:
        made = super().__new__(cls, value)
        made.text, made.scalars = text, scalars
        return made

    text: str
    scalars: Scalars

    __add__, __radd__ = _computed("+", operator.add)
    __sub__, __rsub__ = _computed("-", operator.sub)
    __mul__, __rmul__ = _computed("*", operator.mul)
    __truediv__, __rtruediv__ = _computed("/", operator.truediv)

    def __neg__(self) -> Scalar:
        return self.scalars.number(-float(self), f"(-{self.text})")

    __hash__ = float.__hash__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refusal("compared")
    __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = is_integer = _refusal("rounded")
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refusal("rounded")
    __divmod__ = __rdivmod__ = _refusal("rounded")


@dataclass(frozen=True)
class Probe:
    """What a step is traced with.

    Attributes:
        sign: of the scalars, beside their defaults'.
        off: how far they are from those.
        dtype: of every tensor.
        elements: of every tensor.
    """

    sign: int = 1
    off: float = 1e-4
    dtype: torch.dtype = torch.float64
    elements: int = ELEMENTS

    def scalars(self, definition: Definition) -> tuple[Scalars, list[Scalar]]:
        """Values that nobody writes by hand."""
        scalars = Scalars()
        made = []
        for index, (_, default) in enumerate(definition.scalars):
            off = self.off * math.sqrt(2 + 3 * index) / 3
            near = max(-_LARGEST, min(float(default), _LARGEST))
            beside = math.copysign(off * (1 + abs(near)), near)  # -1 is to be no -1 either
            value = self.sign * (near + beside)
            made.append(scalars.number(value, f"scalars[{index}]"))
        return scalars, made


NEAR = Probe()
OTHER_SCALARS = Probe(sign=-1, off=2e-4)
OTHER_TENSORS = tuple(
    Probe(dtype=dtype, elements=ELEMENTS + 1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
)
