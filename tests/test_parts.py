"""The profile of a sequence: its parts are what the op is made of."""

from __future__ import annotations

import torch
from cases import SMALL, Case

from benchmarks import floors, parts, workloads
from benchmarks.workloads import Row


def test_the_parts_hold_every_product_of_a_training_step() -> None:
    row = Row(SMALL["sequence"], torch.float32, 1, workloads.TRAINING_STEP)
    multiplied = [part.product for part in parts.parts_of(row.case) if part.product]
    assert floors.flops_of(multiplied) == floors.flops(row)


def test_the_parts_make_the_outputs_and_the_gradients() -> None:
    case = Case("7x3x5x17", 3, 5, 17, steps=7)
    held = parts.arrays(case)
    problem = parts.problem(case, held)
    built = parts.library("-O0")  # only what they compute counts here
    for part in parts.parts_of(case):
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
