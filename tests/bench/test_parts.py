"""The profile of a sequence: its parts are what the op is made of."""

from __future__ import annotations

import ctypes

import pytest
import torch
from cases import SMALL, Case

from benchmarks import floors, parts, workloads
from benchmarks.workloads import Row


@pytest.mark.parametrize("steps_multiply_input", [False, True])
def test_the_parts_hold_every_product_of_a_training_step(steps_multiply_input: bool) -> None:
    row = Row(SMALL["sequence"], torch.float32, 1, workloads.TRAINING_STEP)
    found = parts.parts_of(row.case, steps_multiply_input=steps_multiply_input)
    multiplied = [part.product for part in found if part.product]
    assert floors.flops_of(multiplied) == floors.flops(row)


@pytest.mark.parametrize(("batch", "in_steps"), [(3, False), (4, True)])
def test_the_parts_make_the_outputs_and_the_gradients(batch: int, in_steps: bool) -> None:
    case = Case(f"7x{batch}x5x17", batch, 5, 17, steps=7)
    held = parts.arrays(case)
    problem = parts.problem(case, held)
    built = parts.library("-O0")  # only what they compute counts here
    assert built.steps_multiply_input(ctypes.byref(problem)) == in_steps
    for part in parts.parts_of(case, steps_multiply_input=in_steps):
        if part.within is None:
            parts.call(part, problem, built)()

    names = ("input", "weights", "bias", "h0", "c0")
    leaves = [held[name].clone().requires_grad_() for name in names]
    output, _, c_n = case.reference(*leaves, 1.0)
    torch.testing.assert_close(held["output"], output)
    torch.testing.assert_close(held["c_n"], c_n)
    gradients = torch.autograd.grad(output, leaves[:3], held["grad_output"])
    for name, gradient in zip(names[:3], gradients, strict=True):
        torch.testing.assert_close(held[f"d_{name}"], gradient)
