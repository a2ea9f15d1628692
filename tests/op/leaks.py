"""Where torch's own product of a 16-bit type lets a row into another one, or loses an infinity.

oneDNN's tiles on Intel's AMX read beyond a row and multiply what they find by a zero of padding,
and nan * 0 is nan; its kernels for AVX-512 without bfloat16 give nan for an infinite sum of an odd
number of terms (docs/upstream). What is made of torch's products inherits both.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
import torch

import lltm

if TYPE_CHECKING:
    from cases import Case

MADE_OF_TORCH = tuple(
    row.name for row in lltm.backends.BACKENDS if not row.bindings or row.name == "aten"
)
"""The backends that multiply by torch."""
SPECIAL_VALUES = ("inf", "inf_bias", "nan")
"""Those of :data:`cases.VALUES` that a leak shows on."""


@functools.cache
def leaks(dtype: torch.dtype, rows: int, depth: int, columns: int) -> bool:
    """Whether torch's product of these sizes lets a row of nan into another one, here."""
    poisoned = torch.ones(rows, depth, dtype=dtype)
    poisoned[1::2] = float("nan")
    return bool(torch.mm(poisoned, torch.ones(depth, columns, dtype=dtype))[::2].isnan().any())


@functools.cache
def loses_infinity(dtype: torch.dtype, rows: int, depth: int, columns: int) -> bool:
    """Whether torch's product of inf and 1/2 has nan, here."""
    infinite = torch.full((rows, depth), float("inf"), dtype=dtype)
    return bool(torch.mm(infinite, torch.full((depth, columns), 0.5, dtype=dtype)).isnan().any())


def skip_if_torch_leaks(case: Case, dtype: torch.dtype, backend: str) -> None:
    """Skip what torch's own products cannot pass here: those of ``case``, forward and backward."""
    if backend not in MADE_OF_TORCH:
        return
    width, gates = case.state + case.features, 3 * case.state
    parts = (width, case.state, case.features)  # of the weights, side by side or one at a time
    sizes = [pair for part in parts for pair in ((part, gates), (gates, part))]
    for rows in {case.batch, case.batch * (case.steps or 1)}:
        for depth, columns in sizes:
            if leaks(dtype, rows, depth, columns):
                pytest.skip(
                    f"not run: torch's product of {dtype}, [{rows}, {depth}] by "
                    f"[{depth}, {columns}], lets nan into another row on this processor"
                )


def skip_if_inherited(case: Case, dtype: torch.dtype, backend: str) -> None:
    """The same for a case that is not about rows, where its values would show a leak."""
    if case.values in SPECIAL_VALUES:
        skip_if_torch_leaks(case, dtype, backend)


def skip_if_torch_loses_infinity(case: Case, dtype: torch.dtype, backend: str) -> None:
    """Skip the gradient of the weights where torch gives nan for the infinity that it is."""
    if backend not in MADE_OF_TORCH or case.values not in SPECIAL_VALUES:
        return
    gates, rows = 3 * case.state, case.batch * (case.steps or 1)
    for columns in (case.state + case.features, case.state, case.features):
        if loses_infinity(dtype, gates, rows, columns):
            pytest.skip(
                f"not run: torch's product of {dtype}, [{gates}, {rows}] by [{rows}, {columns}], "
                "of inf and 1/2 has nan on this processor"
            )
