"""What the answer is to many more digits, and how far an answer lies from it in ulp.

For float32 and below the oracle is the reference in float64; for float64 it is mpmath with 50
digits, element by element, for small problems.
"""

from __future__ import annotations

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


def error(actual: Tensor, oracle: Tensor) -> Tensor:
    """Elementwise ``|actual - oracle|`` in ulp of ``actual.dtype``.

    Equal infinities and two nans are 0 apart; an infinity or nan on one side only is inf apart.
    """
    wide = actual.double()
    apart = (wide - oracle).abs() / ulp(oracle, actual.dtype)
    same = (wide == oracle) | (wide.isnan() & oracle.isnan())
    return torch.where(same, 0.0, torch.nan_to_num(apart, nan=float("inf")))


def exact(case: Case, arguments: Arguments) -> tuple[Tensor, ...]:
    """The outputs in float64, right to far more digits than ``arguments`` can hold."""
    if arguments.input.dtype != torch.float64:
        return case.reference(*arguments.map(Tensor.double))
    return _mpmath(arguments)


def _mpmath(arguments: Arguments) -> tuple[Tensor, ...]:
    with mpmath.workdps(DIGITS):
        weights = _matrix(arguments.weights)
        rows = len(weights)
        bias = [mpmath.mpf(0)] * rows
        if arguments.bias is not None:
            bias = [mpmath.mpf(value) for value in arguments.bias.reshape(-1).tolist()]
        alpha = mpmath.mpf(arguments.alpha)
        h, c = _matrix(arguments.h), _matrix(arguments.c)
        unrolled = arguments.input if arguments.input.dim() == 3 else arguments.input.unsqueeze(0)
        outputs = []
        for step in unrolled:
            x = [left + right for left, right in zip(h, _matrix(step), strict=True)]
            z = [[mpmath.fdot(w, row) + b for w, b in zip(weights, bias, strict=True)] for row in x]
            pairs = [
                [_unit(row, c_row, index, alpha) for index in range(len(c_row))]
                for row, c_row in zip(z, c, strict=True)
            ]
            h = [[new_h for new_h, _ in row] for row in pairs]
            c = [[new_c for _, new_c in row] for row in pairs]
            outputs.append(h)
    last = (_tensor(h), _tensor(c))
    if arguments.input.dim() == 2:
        return last
    return (torch.stack([_tensor(output) for output in outputs]), *last)


def _unit(
    z: list[mpmath.mpf], c: list[mpmath.mpf], index: int, alpha: mpmath.mpf
) -> tuple[mpmath.mpf, mpmath.mpf]:
    state = len(c)
    input_gate = 1 / (1 + mpmath.exp(-z[index]))
    output_gate = 1 / (1 + mpmath.exp(-z[state + index]))
    z_candidate = z[2 * state + index]
    candidate = z_candidate if z_candidate > 0 else alpha * mpmath.expm1(z_candidate)
    new_cell = c[index] + candidate * input_gate
    return mpmath.tanh(new_cell) * output_gate, new_cell


def _matrix(tensor: Tensor) -> list[list[mpmath.mpf]]:
    return [[mpmath.mpf(value) for value in row] for row in tensor.tolist()]


def _tensor(rows: list[list[mpmath.mpf]]) -> Tensor:
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)
