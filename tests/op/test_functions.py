"""Each function that a cell's functor may call, in every instruction set of this processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bounds
import gmpy2
import oracle
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lltm import _compile, jit

pytestmark = pytest.mark.subprocess

STATES, X, Y = 16, 14, 15
"""As functions.inc has them."""
WIDTH = 23
"""Of a row: vectors and a part of one."""
EXACT: dict[str, Callable[[Any], Any]] = {
    "sigmoid": oracle.sigmoid,
    "tanh": gmpy2.tanh,
    "elu": oracle.elu,
    "elu'": lambda x: gmpy2.mpfr(1) if x > 0 else gmpy2.exp(x),
    "exp": gmpy2.exp,
    "expm1": gmpy2.expm1,
    "log": gmpy2.log,
    "log1p": gmpy2.log1p,
    "softplus": oracle.softplus,
    "log_sigmoid": lambda x: -oracle.softplus(-x),
    "sqrt": gmpy2.sqrt,
}
"""In the order of the states."""
TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": functional.elu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "softplus": functional.softplus,
    "log_sigmoid": functional.logsigmoid,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
}
FROM = {"log": 0.0, "sqrt": 0.0, "log1p": -1.0}
"""What a function takes nothing below of."""
NAMES = (*EXACT, "abs", "maximum", "minimum")
SETS = ("baseline", *(["avx2"] if jit.kernel_set() != "baseline" else []))
SETS += ("avx512",) if jit.kernel_set() == "avx512" else ()
DTYPES = (torch.float32, torch.float64)


@pytest.fixture(scope="module", params=SETS)
def ops(
    compiler: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Those of a cell whose step is all functions, in one set of kernels."""
    namespace = f"lltm_test_functions_{request.param}"
    library = tmp_path_factory.mktemp(request.param) / f"{namespace}.so"
    kernels = ("cpu/kernels.cpp", *jit.TILE_SOURCES, f"cpu/kernels_{request.param}.cpp")
    csrc = jit.source_directory()
    flags = [
        *(f"-DLLTM_NAMESPACE={namespace}", "-DLLTM_CELL=Functions"),
        f'-DLLTM_CELL_HEADER="{Path(__file__).with_name("functions.inc")}"',
        f"-DLLTM_ONLY_KERNEL_SET=k{request.param.capitalize()}",
    ]
    sources = [csrc / name for name in ("stable/any_binding.cpp", *kernels)]
    _compile.Library(library, sources, flags, jit.exports()).compile()
    torch.ops.load_library(library)
    return getattr(torch.ops, namespace)


def results(ops: Any, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Each function of x, or of x and y; a vector and a tail at a time."""
    rows = -(-x.numel() // WIDTH)
    states = x.new_ones(STATES, rows * WIDTH)
    states[X, : x.numel()] = x
    states[Y, : x.numel()] = y
    input, weights = x.new_zeros(1, rows, 0), x.new_zeros(WIDTH, WIDTH)
    given = (input, weights, None, states.view(STATES, rows, WIDTH), [], None, None)
    _, last = ops.sequence(*given)
    return dict(zip(NAMES, last.reshape(STATES, -1)[:, : x.numel()], strict=False))


def samples(dtype: torch.dtype, lowest: float) -> Tensor:
    """Small, middling and large ones of either sign, and those near where a function turns."""
    generator = torch.Generator().manual_seed(0)
    count = 150
    range_ = math.log(torch.finfo(dtype).max)

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low

    sign = torch.where(uniform(-1, 1) < 0, -1.0, 1.0)
    exponents = math.log2(torch.finfo(dtype).tiny), math.log2(torch.finfo(dtype).max)
    every = [
        *(uniform(-most, most) for most in (0.8, 2, 20, range_)),
        sign * torch.exp2(uniform(*exponents)),
        sign * torch.exp2(uniform(exponents[0], 0)),
        1 + sign * torch.exp2(uniform(math.log2(torch.finfo(dtype).eps), 0)),
        torch.exp2(uniform(math.log2(torch.finfo(dtype).eps), 0)) - 1,
    ]
    found = torch.cat(every).to(dtype)
    return found[found > lowest]


def error(got: float, exact: Any, dtype: torch.dtype) -> float:
    """In ulp of the exact number."""
    if exact == 0:
        return 0.0 if got == 0 else math.inf
    info = torch.finfo(dtype)
    exponent, _ = gmpy2.frexp(exact)
    ulp = info.eps * gmpy2.mpfr(2) ** (exponent - 1)
    return float(abs(got - exact) / max(ulp, gmpy2.mpfr(info.smallest_normal) * info.eps))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_it_is_within_its_bound(ops: Any, name: str, dtype: torch.dtype) -> None:
    x = samples(dtype, FROM.get(name, -math.inf))
    bound = bounds.NEARER.get(name, bounds.MATHS)
    largest = torch.finfo(dtype).max
    with oracle.digits():
        for at, got in zip(x.tolist(), results(ops, x, x)[name].tolist(), strict=True):
            exact = EXACT[name](gmpy2.mpfr(at))
            if abs(exact) > largest:
                assert abs(got) >= largest, (at, got)
            else:
                assert error(got, exact, dtype) <= bound, (at, got, f"{exact:.20g}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TORCH)
def test_special_numbers_are_torchs(ops: Any, name: str, dtype: torch.dtype) -> None:
    large = torch.finfo(dtype).max
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, large, -large, -2.0])
    got, expected = results(ops, x.to(dtype), x.to(dtype))[name], TORCH[name](x.to(dtype))
    torch.testing.assert_close(got, expected, equal_nan=True)
    if name != "elu":  # whose value at -0 is 0
        number = ~expected.isnan()
        assert torch.equal(got[number].signbit(), expected[number].signbit())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_has_the_same_bits_whatever_row_is_beside_its_own(
    ops: Any, dtype: torch.dtype
) -> None:
    """Rows are computed two at a time, the last of an odd number by itself."""
    large = torch.finfo(dtype).max
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, large, -large], dtype=dtype)
    x = torch.cat([special.repeat(WIDTH), samples(dtype, -math.inf)])[: 51 * WIDTH]
    y = x.flip(0)
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    together = results(ops, x, y)
    for row in (0, 1, 8, 50):
        its = slice(row * WIDTH, (row + 1) * WIDTH)
        for name, alone in results(ops, x[its], y[its]).items():
            beside = together[name][its]
            equal = beside.view(bits) == alone.view(bits)
            assert (equal | (beside.isnan() & alone.isnan())).all(), (name, row)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_is_the_largest_and_the_smallest(ops: Any, dtype: torch.dtype) -> None:
    numbers = torch.tensor([1.0, -2.0, math.nan, math.inf, -math.inf], dtype=dtype)
    x, y = numbers.repeat_interleave(5), numbers.repeat(5)
    got = results(ops, x, y)
    torch.testing.assert_close(got["maximum"], torch.maximum(x, y), equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(got["minimum"], torch.minimum(x, y), equal_nan=True, rtol=0, atol=0)
