"""What the answer is to many more digits, and how far an answer lies from it in ulp.

For float32 and below the oracle is the reference in float64; for float64 it is MPFR's numbers of
50 digits, in arrays of NumPy, for small problems.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gmpy2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from cases import Arguments, Case

Numbers = npt.NDArray[np.object_]
"""Of ``gmpy2.mpfr``."""


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
    with digits():
        return _sequence(arguments)


def digits() -> AbstractContextManager[Any]:
    """Within it MPFR computes with 50 digits."""
    return gmpy2.context(precision=167)


def as_numbers(tensor: Tensor) -> Numbers:
    """Its elements as MPFR's numbers."""
    return np.vectorize(gmpy2.mpfr, otypes=[object])(tensor.detach().double().numpy())


def as_exact(values: Numbers) -> Exact:
    """As float64, with what that rounds off."""
    value = values.astype(np.float64)
    return Exact(torch.from_numpy(value), torch.from_numpy((values - value).astype(np.float64)))


def sigmoid(x: gmpy2.mpfr) -> gmpy2.mpfr:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + gmpy2.exp(-x))


def elu(x: gmpy2.mpfr, alpha: float = 1.0, **_: Any) -> gmpy2.mpfr:
    """x where it is positive, else alpha (exp(x) - 1); torch passes more than alpha."""
    return x if x > 0 else alpha * gmpy2.expm1(x)


def softplus(x: gmpy2.mpfr) -> gmpy2.mpfr:
    """log(1 + exp(x)), also where exp(x) is larger than a number can be."""
    return max(x, 0) + gmpy2.log1p(gmpy2.exp(-abs(x)))


def _sequence(arguments: Arguments) -> tuple[Exact, ...]:
    weights, h, c = map(as_numbers, (arguments.weights, arguments.h, arguments.c))
    bias = 0 if arguments.bias is None else as_numbers(arguments.bias.reshape(-1))
    each_sigmoid, each_elu, tanh = (
        np.frompyfunc(of, 1, 1) for of in (sigmoid, lambda x: elu(x, arguments.alpha), gmpy2.tanh)
    )
    xs, outputs = as_numbers(arguments.input), []
    for x in xs if xs.ndim == 3 else [xs]:
        z = np.concatenate([h, x], axis=1) @ weights.T + bias
        input_gate, output_gate, candidate = np.split(z, 3, axis=1)
        c = c + each_elu(candidate) * each_sigmoid(input_gate)
        h = tanh(c) * each_sigmoid(output_gate)
        outputs.append(h)
    last = as_exact(h), as_exact(c)
    return last if xs.ndim == 2 else (as_exact(np.stack(outputs)), *last)
