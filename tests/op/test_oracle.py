"""How wrong: errors in ulp against an oracle, beside eager PyTorch's on the same inputs.

Two measures. The pointwise part (gates, states) is held to 4 ulp, element by element, on weights
that make z exact. For the whole op an element's ulp error says little - where a sum cancels, any
order of adding is off by thousands of ulp, and which order suffers is chance - so there the
distribution over all cases is compared, by its median and 90th percentile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cases
import oracle
import pytest
import torch
from cases import CASES, DTYPES, Arguments, Case
from torch import Tensor

ids = cases.identify
ULP_POINTWISE = 4.0
QUANTILES = torch.tensor([0.5, 0.9], dtype=torch.float64)
DRAWS = 4
OLD_CELLS = ("zero", "same sign")
ALPHAS = [float(torch.tensor(alpha)) for alpha in (1.0, 0.5, 0.3, 1.3, 2.7)]
"""Rounded to float32 as the op and torch's elu do, so that the oracle has the same one."""
FINITE = [
    case
    for case in CASES
    if case.values not in {"inf", "inf_bias", "nan"} and case.batch and case.steps != 0
]
MPMATH_ELEMENTS = 600


def _is_small(case: Case) -> bool:
    return case.batch * case.state * (case.steps or 1) <= MPMATH_ELEMENTS


def _record(
    record_property: Any, backend: str, dtype: torch.dtype, case: str, **ulp: float
) -> None:
    name = str(dtype).removeprefix("torch.")
    record_property("oracle", {"backend": backend, "dtype": name, "case": case, **ulp})


def _normwise(actual: tuple[Tensor, ...], exact: tuple[oracle.Exact, ...]) -> float:
    """Largest error in ulp of the largest element."""
    return max(
        float((a.cpu().double() - e.value).abs().max() / oracle.ulp(e.value.abs().max(), a.dtype))
        for a, e in zip(actual, exact, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", FINITE, ids=ids)
def test_normwise(
    case: Case, dtype: torch.dtype, compiled_backend: str, record_property: Any
) -> None:
    """Largest error in ulp of the largest element, within the table and on record."""
    if dtype == torch.float64 and not _is_small(case):
        case = replace(
            case, batch=min(case.batch, 4), state=min(case.state, 16), steps=case.steps and 4
        )
    arguments = case.arguments(dtype)
    exact = oracle.exact(case, arguments)
    ulp = _normwise(case.function(*arguments, backend=compiled_backend), exact)
    eager_ulp = _normwise(case.reference(*arguments), exact)
    _record(record_property, compiled_backend, dtype, str(ids(case)), ulp=ulp, eager_ulp=eager_ulp)
    tolerance = cases.TOLERANCES[dtype]
    assert ulp <= (tolerance.rtol + tolerance.atol) / torch.finfo(dtype).eps


def quantiles(errors: list[Tensor]) -> Tensor:
    joined = torch.cat([error.flatten() for error in errors]).sort().values
    return joined[(QUANTILES * (len(joined) - 1)).long()]


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_fused_is_at_most_as_wrong_as_eager(op: str, dtype: torch.dtype) -> None:
    fused, eager = [], []
    for case in (case for case in FINITE if case.op == op):
        if dtype == torch.float64 and not _is_small(case):
            continue
        for draw in range(DRAWS):
            drawn = replace(case, name=f"{case.name} {draw}")
            arguments = drawn.arguments(dtype)
            exact = oracle.exact(drawn, arguments)
            fused += map(oracle.error, drawn.function(*arguments, backend="fused"), exact)
            eager += map(oracle.error, drawn.reference(*arguments), exact)
    ours, theirs = quantiles(fused), quantiles(eager)
    assert (ours <= theirs).all(), f"fused {ours.tolist()}, eager {theirs.tolist()} ulp"


def _gradients(
    outputs: tuple[Tensor, ...], of: Arguments, weights: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    seeds = [seed.to(outputs[0].dtype) for seed in weights]
    return torch.autograd.grad(outputs, of.tensors(), seeds)


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_fused_gradients_are_at_most_as_wrong_as_eager(op: str) -> None:
    """Each argument's gradient, those of the parameters too, which are sums over batch and time."""
    errors: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    for case in (case for case in FINITE if case.op == op and case.bias == "flat"):
        for draw in range(DRAWS):
            drawn = replace(case, name=f"{case.name} {draw}")
            leaves = drawn.arguments().leaves()
            wide = leaves.map(Tensor.double).leaves()
            weights = cases.cotangents(drawn.reference(*leaves))

            exact = map(oracle.Exact, _gradients(drawn.reference(*wide), wide, weights))
            ours = _gradients(drawn.function(*leaves, backend="fused"), leaves, weights)
            theirs = _gradients(drawn.reference(*leaves), leaves, weights)
            for name, o, t, e in zip(cases.TENSOR_NAMES[op], ours, theirs, exact, strict=True):
                fused, eager = errors.setdefault(name, ([], []))
                fused.append(oracle.error(o, e))
                eager.append(oracle.error(t, e))
    for name, (fused, eager) in errors.items():
        ours, theirs = quantiles(fused), quantiles(eager)
        assert (ours <= theirs).all(), f"{name}: fused {ours.tolist()}, eager {theirs.tolist()} ulp"


# The pointwise part -----------------------------------------------------------------------------


def _sweep(dtype: torch.dtype, count: int) -> Tensor:
    """z from the smallest to the largest, dense where the gates bend, both signs and zero.

    It ends where exp(-z) would leave the dtype: beyond, a gate is subnormal and has no 4 ulp to
    keep.
    """
    info = torch.finfo(dtype)
    edge = -float(torch.tensor(info.tiny, dtype=torch.float64).log())
    powers = torch.logspace(-7, 0, count, dtype=torch.float64) * edge
    steps = torch.linspace(-min(20.0, edge), min(20.0, edge), count, dtype=torch.float64)
    return torch.cat([steps, powers, -powers, torch.zeros(1)]).to(dtype)


def _pointwise(
    dtype: torch.dtype, count: int, old_cell: str, alpha: float = 1.0, draw: int = 0
) -> Arguments:
    """S = 1, F = 3, weights [0 | I]: the three inputs of a row are its z_i, z_o, z_c, exactly."""
    generator = torch.Generator().manual_seed(draw)
    z = _sweep(dtype, count)
    rows = len(z)
    shuffled = [z[torch.randperm(rows, generator=generator)] for _ in range(2)]
    weights = torch.cat([torch.zeros(3, 1), torch.eye(3)], dim=1)
    cell = torch.zeros(rows, 1, dtype=torch.float64)
    if old_cell == "same sign":
        cell = (
            torch.randn(rows, 1, generator=generator, dtype=torch.float64).abs() * z[:, None].sign()
        )
    return Arguments(
        input=torch.stack([*shuffled, z], dim=1),
        weights=weights.to(dtype),
        bias=None,
        h=torch.zeros(rows, 1, dtype=dtype),
        c=cell.to(dtype),
        alpha=alpha,
    )


def _worst(dtype: torch.dtype, old_cell: str, alpha: float, draw: int = 0) -> dict[str, float]:
    """Largest error of the pointwise part in ulp, the fused kernels' and eager's."""
    arguments = _pointwise(dtype, 300 if dtype == torch.float64 else 20000, old_cell, alpha, draw)
    case = Case("pointwise", len(arguments.input), 3, 1, alpha=alpha)
    exact = oracle.exact(case, arguments)
    answers = {
        "ulp": case.function(*arguments, backend="fused"),
        "eager_ulp": case.reference(*arguments),
    }
    return {
        name: max(float(oracle.error(a, e).max()) for a, e in zip(outputs, exact, strict=True))
        for name, outputs in answers.items()
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("old_cell", OLD_CELLS)
def test_pointwise(old_cell: str, alpha: float, dtype: torch.dtype, record_property: Any) -> None:
    """At most 4 ulp, where old_cell + candidate * gate does not cancel."""
    worst = _worst(dtype, old_cell, alpha)
    _record(record_property, "fused", dtype, f"pointwise {old_cell} alpha {alpha}", **worst)
    assert worst["ulp"] <= ULP_POINTWISE


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("old_cell", OLD_CELLS)
def test_fused_pointwise_is_at_most_as_wrong_as_eager(old_cell: str, alpha: float) -> None:
    """In the mean of the draws, for the largest of one draw's errors is a matter of chance."""
    draws = [_worst(torch.float32, old_cell, alpha, draw) for draw in range(DRAWS)]
    ours, theirs = (sum(worst[name] for worst in draws) for name in ("ulp", "eager_ulp"))
    assert ours <= theirs, f"fused {ours / DRAWS}, eager {theirs / DRAWS} ulp"


def test_gates_beyond_exp_overflow() -> None:
    """Where exp(-z) overflows float32 the gate is subnormal; eager flushes it to zero and loses
    the state with it when the candidate is large."""
    z = -torch.linspace(87.5, 103.0, 400)
    arguments = _pointwise(torch.float32, 1, "zero")._replace(
        input=torch.stack([z, torch.full_like(z, 5.0), torch.full_like(z, 200.0)], dim=1),
        h=torch.zeros(len(z), 1),
        c=torch.zeros(len(z), 1),
    )
    case = Case("beyond", len(z), 3, 1)
    exact = oracle.exact(case, arguments)[1].value
    _, actual = case.function(*arguments, backend="fused")
    half_of_the_smallest = 0.5 * torch.finfo(torch.float32).tiny * torch.finfo(torch.float32).eps
    assert ((actual - exact).abs() <= 200 * 4 * half_of_the_smallest + 1e-6 * exact).all()
