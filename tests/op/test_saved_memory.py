"""What forward keeps for backward: no more than it must, and at most half of what eager keeps."""

from __future__ import annotations

from functools import partial

import cases
import memory
import pytest
import torch
from cases import BENCHMARK_CASES, Case
from cells_cases import CELLS, EACH_CELL
from leaks import MADE_OF_TORCH

import lltm
from lltm.cells import _reference
from lltm.cells._problem import Problem, present
from lltm.cells._run import run

FUSED = [
    row.name
    for row in lltm.backends.available()
    if "cpu" in row.devices and row.name not in MADE_OF_TORCH
]


def saved(case: Case, dtype: torch.dtype, backend: str, *, whole: bool) -> int:
    """Bytes beyond arguments and outputs; with ``whole``, beyond weights and bias alone."""
    arguments = case.arguments(dtype).leaves()
    known = [arguments.weights, arguments.bias] if whole else arguments.tensors()
    function = partial(case.function, *arguments, backend=backend)
    return memory.saved_bytes(function, known, count_outputs=whole)


def activations(case: Case) -> int:
    """Elements of X = [old_h, input], gates and cell state of every step, and of h0, c0."""
    rows = (case.steps or 1) * case.batch
    return rows * (case.state + case.features + 3 * case.state + case.state) + (
        2 * case.batch * case.state
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=cases.identify)
@pytest.mark.parametrize("backend", FUSED)
def test_no_more_than_inputs_activations_and_cell_states(
    backend: str, case: Case, dtype: torch.dtype
) -> None:
    held = saved(case, dtype, backend, whole=True)
    assert 0 < held <= activations(case) * dtype.itemsize


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=cases.identify)
@pytest.mark.parametrize("backend", FUSED)
def test_at_most_half_of_eager(backend: str, case: Case, dtype: torch.dtype) -> None:
    held = saved(case, dtype, backend, whole=False)
    assert 0 < held <= 0.5 * saved(case, dtype, "reference", whole=False)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("reset", [False, True], ids=["", "resets"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@EACH_CELL
def test_a_cell_keeps_no_more_than_inputs_activations_and_states(
    name: str, dtype: torch.dtype, reset: bool
) -> None:
    """And where rows start again, which ones and from what."""
    cell = CELLS[name]
    given = Problem(cell, steps=16, batch=8, state=32, dtype=dtype).arguments(reset)
    for each in present(given):
        each.requires_grad_()
    parameters = [given.weights, given.bias]
    kept = memory.saved_bytes(partial(run, cell, given), parameters, count_outputs=True)
    (steps, batch, features), state = given.input.shape, given.states.shape[2]
    of_step = state + features + cell.pre_activations * state + (cell.states - 1) * state
    elements = steps * batch * of_step + (1 + reset) * cell.states * batch * state
    assert 0 < kept <= elements * dtype.itemsize + reset * steps * batch


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("reset", [False, True], ids=["", "resets"])
@EACH_CELL
def test_a_cell_keeps_less_than_eager(name: str, reset: bool) -> None:
    cell = CELLS[name]
    given = Problem(cell, steps=16, batch=8, state=32, dtype=torch.float32).arguments(reset)
    for each in present(given):
        each.requires_grad_()
    known = [*present(given), *([given.reset] if reset else [])]
    kernels, eager = (
        memory.saved_bytes(partial(function, cell, given), known)
        for function in (run, _reference.sequence)
    )
    assert kernels < eager


def test_a_saved_view_counts_as_its_whole_storage_once() -> None:
    base = torch.ones(10, requires_grad=True)

    def call() -> list[torch.Tensor]:
        doubled = base * 2
        return [(doubled[:2] * doubled[2:4]).sum()]

    assert memory.saved_bytes(call, [base]) == 10 * torch.float32.itemsize


def test_the_high_water_mark_is_of_what_is_held_at_one_time() -> None:
    def call() -> torch.Tensor:
        first = torch.empty(1 << 20)
        del first
        return torch.empty(3 << 18)

    assert memory.high_water(call) == 4 << 20
