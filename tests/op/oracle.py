"""What the answer is to many more digits, and how far an answer lies from it in ulp.

For float32 and below the oracle is the reference in float64; for float64 it is mpmath with 50
digits, element by element, for small problems.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mpmath
import torch
from torch import Tensor

if TYPE_CHECKING:
    from cases import Arguments, Case

DIGITS = 50


def ulp(oracle: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance between neighbouring numbers of ``dtype`` at each element of ``oracle``."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(oracle.double())
    return (info.eps * torch.exp2(exponent.double() - 1)).clamp_min(info.tiny * info.eps)


@dataclass(frozen=True)
class Exact:
    """An answer as float64, and what that rounded off: without it float64's own errors are whole
    ulp, and medians of them say nothing."""

    value: Tensor
    low: Tensor | float = 0.0


def error(actual: Tensor, oracle: Exact) -> Tensor:
    """Elementwise ``|actual - oracle|`` in ulp of ``actual.dtype``.

    Equal infinities and two nans are 0 apart; an infinity or nan on one side only is inf apart.
    """
    wide, value = actual.double(), oracle.value
    apart = (wide - value - oracle.low).abs() / ulp(value, actual.dtype)
    same = (wide.isinf() & (wide == value)) | (wide.isnan() & value.isnan())
    return torch.where(same, 0.0, torch.nan_to_num(apart, nan=float("inf")))


def exact(case: Case, arguments: Arguments) -> tuple[Exact, ...]:
    """The outputs, right to far more digits than ``arguments`` can hold."""
    if arguments.input.dtype != torch.float64:
        return tuple(map(Exact, case.reference(*arguments.map(lambda t: t.cpu().double()))))
    return _mpmath(arguments)


@dataclass(frozen=True)
class Row:
    """Numbers as ``numerators[i] / denominator``, exactly: the denominator is a power of two.

    Whole numbers are multiplied and added twenty times as fast as mpmath's.
    """

    numerators: list[int]
    denominator: int

    @staticmethod
    def of(values: list[float | mpmath.mpf]) -> Row:
        ratios = [_ratio(value) for value in values]
        common = max((denominator for _, denominator in ratios), default=1)
        return Row([numerator * (common // own) for numerator, own in ratios], common)

    def __matmul__(self, other: Row) -> mpmath.mpf:
        """The dot product: exact, then rounded once to mpmath's digits."""
        products = map(operator.mul, self.numerators, other.numerators)
        return mpmath.mpf(sum(products)) / (self.denominator * other.denominator)


def _ratio(value: float | mpmath.mpf) -> tuple[int, int]:
    if isinstance(value, float):
        return value.as_integer_ratio()
    return mpmath.libmp.to_rational(value._mpf_)


def _mpmath(arguments: Arguments) -> tuple[Exact, ...]:
    with mpmath.workdps(DIGITS):
        weights = [Row.of(row) for row in arguments.weights.tolist()]
        bias = [0.0] * len(weights)
        if arguments.bias is not None:
            bias = arguments.bias.reshape(-1).tolist()
        h, c = arguments.h.tolist(), arguments.c.tolist()
        unrolled = arguments.input if arguments.input.dim() == 3 else arguments.input.unsqueeze(0)
        outputs = []
        for step in unrolled.tolist():
            x = [Row.of(left + right) for left, right in zip(h, step, strict=True)]
            z = [[w @ row + b for w, b in zip(weights, bias, strict=True)] for row in x]
            pairs = [
                [_unit(row, c_row, index, arguments.alpha) for index in range(len(c_row))]
                for row, c_row in zip(z, c, strict=True)
            ]
            h = [[new_h for new_h, _ in row] for row in pairs]
            c = [[new_c for _, new_c in row] for row in pairs]
            outputs.append(h)
    last = (as_exact(h), as_exact(c))
    if arguments.input.dim() == 2:
        return last
    steps = [as_exact(output) for output in outputs]
    lows = torch.stack([torch.as_tensor(step.low) for step in steps])
    return (Exact(torch.stack([step.value for step in steps]), lows), *last)


def _unit(
    z: list[mpmath.mpf], c: list[float | mpmath.mpf], index: int, alpha: float
) -> tuple[mpmath.mpf, mpmath.mpf]:
    state = len(c)
    input_gate = 1 / (1 + mpmath.exp(-z[index]))
    output_gate = 1 / (1 + mpmath.exp(-z[state + index]))
    z_candidate = z[2 * state + index]
    candidate = z_candidate if z_candidate > 0 else alpha * mpmath.expm1(z_candidate)
    new_cell = c[index] + candidate * input_gate
    return mpmath.tanh(new_cell) * output_gate, new_cell


def as_exact(rows: list[list[mpmath.mpf]]) -> Exact:
    with mpmath.workdps(DIGITS):
        low = [[float(value - float(value)) for value in row] for row in rows]
    value = [[float(value) for value in row] for row in rows]
    return Exact(*(torch.tensor(part, dtype=torch.float64) for part in (value, low)))
