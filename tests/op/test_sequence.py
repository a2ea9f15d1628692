"""A sequence is its cells, one after another."""

from __future__ import annotations

import cases
import leaks
import pytest
import torch
from cases import DTYPES, SEQUENCE_CASES, Arguments, Case
from torch import Tensor

import lltm

ids = cases.identify
WITH_STEPS = [case for case in SEQUENCE_CASES if case.steps != 0]


def _unrolled(arguments: Arguments, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    h, c = arguments.h, arguments.c
    outputs = []
    for step in arguments.input:
        h, c = lltm.lltm_cell(
            step, arguments.weights, arguments.bias, h, c, arguments.alpha, backend=backend
        )
        outputs.append(h)
    return torch.stack(outputs), h, c


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", WITH_STEPS, ids=ids)
def test_sequence_equals_unrolled_cells(
    case: Case, dtype: torch.dtype, compiled_backend: str
) -> None:
    leaks.skip_if_inherited(case, dtype, compiled_backend)
    arguments = case.arguments(dtype).leaves()
    actual = lltm.lltm_sequence(*arguments, backend=compiled_backend)
    expected = _unrolled(arguments, compiled_backend)
    for name, a, e in zip(cases.OUTPUT_NAMES["sequence"], actual, expected, strict=True):
        cases.assert_close(a, e, name)
    gradients = cases.gradients(actual, arguments)
    for a, e in zip(gradients, cases.gradients(expected, arguments), strict=True):
        cases.assert_close(a, e, "gradient")


@pytest.mark.parametrize("case", WITH_STEPS, ids=ids)
def test_the_last_output_is_h_n(case: Case, backend: str) -> None:
    output, h_n, _ = lltm.lltm_sequence(*case.arguments(), backend=backend)
    assert torch.equal(output[-1].nan_to_num(), h_n.nan_to_num())
    assert output.data_ptr() != h_n.data_ptr() or not h_n.numel(), "h_n is no view of output"


def test_states_may_be_changed_in_place(backend: str) -> None:
    """Outputs share no memory: training code detaches and overwrites states between chunks."""
    for steps in (0, 1, 3):
        arguments = Case(f"steps_{steps}", 2, 3, 4, steps=steps).arguments()
        output, h_n, c_n = lltm.lltm_sequence(*arguments, backend=backend)
        kept = [tensor.clone() for tensor in (output, *arguments.tensors())]
        h_n.fill_(7.0)
        c_n.fill_(7.0)
        for now, then in zip((output, *arguments.tensors()), kept, strict=True):
            assert torch.equal(now, then)
