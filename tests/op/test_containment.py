"""Whatever a row holds stays in it: every other row has the same bits as without it, and no step
sees a later one.

``test_capabilities.py`` runs the fused kernels' part on every instruction set of this processor.
"""

from __future__ import annotations

from collections.abc import Iterator

import cases
import leaks
import pytest
import torch
from cases import DTYPES, Arguments, Case
from torch import Tensor

ids = cases.identify
VALUES = ("nan", "inf", "-inf", "max")
# B, F, S. Odd and even: F, S + F (the depth of a product forward) and 3S (backward), also 144, and
# one row or more than any block has. A library may choose another way to multiply beyond some size.
SIZES = (
    (2, 1, 1),
    (3, 2, 5),
    (5, 7, 4),
    (9, 5, 48),
    (16, 32, 64),
    (17, 53, 32),
    (33, 5, 16),
    (33, 8, 17),
    (40, 250, 50),
    (300, 3, 11),
)
CELLS = [Case(f"{b}x{f}x{s}", b, f, s) for b, f, s in SIZES]
SEQUENCES = [Case(f"4x{b}x{f}x{s}", b, f, s, steps=4) for b, f, s in ((1, 33, 16), *SIZES)]
STRIPES = (0, 1)
"""Poisoned are all odd rows, or all even ones, so that each clean row has poison on both sides."""


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def _seeds(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    return [
        seed.to(output) for output, seed in zip(outputs, cases.cotangents(outputs), strict=True)
    ]


def _per_row(case: Case, arguments: Arguments, seeds: list[Tensor], backend: str) -> list[Tensor]:
    """Outputs, and the gradients that have a row for each row of the batch."""
    leaves = arguments.leaves()
    outputs = case.function(*leaves, backend=backend)
    wanted = (leaves.input, leaves.h, leaves.c)
    return [output.detach() for output in outputs] + list(
        torch.autograd.grad(outputs, wanted, seeds)
    )


def poison(tensor: Tensor, stripe: int, value: str) -> Tensor:
    """Every second row of a [..., B, N] tensor, from row ``stripe`` on, filled."""
    poisoned = tensor.clone()
    largest = torch.finfo(tensor.dtype).max
    poisoned[..., stripe::2, :] = largest if value == "max" else float(value)
    return poisoned


def _assert_contained(case: Case, dtype: torch.dtype, backend: str) -> None:
    leaks.skip_if_torch_leaks(case, dtype, backend)
    arguments = case.arguments(dtype)
    seeds = _seeds(case.function(*arguments, backend=backend))
    alone = _per_row(case, arguments, seeds, backend)
    names = (*cases.OUTPUT_NAMES[case.op], "d_input", "d_h", "d_c")
    for value in VALUES:
        for stripe in STRIPES:
            beside = _per_row(
                case,
                arguments._replace(
                    input=poison(arguments.input, stripe, value),
                    h=poison(arguments.h, stripe, value),
                    c=poison(arguments.c, stripe, value),
                ),
                [poison(seed, stripe, value) for seed in seeds],
                backend,
            )
            for name, a, e in zip(names, beside, alone, strict=True):
                clean = slice(1 - stripe, None, 2)
                assert torch.equal(a[..., clean, :], e[..., clean, :]), (
                    f"{value} in the rows beside reached {name}"
                )


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", [*CELLS, *SEQUENCES], ids=ids)
def test_a_row_stays_in_its_row(case: Case, dtype: torch.dtype, backend: str) -> None:
    _assert_contained(case, dtype, backend)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize(
    "case", [Case("wide", 65, 41, 130), Case("wide", 65, 41, 130, steps=4)], ids=ids
)
def test_a_row_stays_in_its_row_on_threads(
    case: Case, dtype: torch.dtype, threads: int, compiled_backend: str
) -> None:
    torch.set_num_threads(threads)
    _assert_contained(case, dtype, compiled_backend)


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", SEQUENCES, ids=ids)
def test_no_step_sees_a_later_one(case: Case, dtype: torch.dtype, backend: str) -> None:
    """Nor does a gradient see the output gradient of an earlier step."""
    leaks.skip_if_torch_leaks(case, dtype, backend)
    arguments = case.arguments(dtype)
    seeds = _seeds(case.function(*arguments, backend=backend))
    output, _, _, d_input, _, _ = _per_row(case, arguments, seeds, backend)
    assert case.steps is not None
    for step in range(1, case.steps):
        later = arguments.input.clone()
        later[step:] = float("nan")
        seen = case.function(*arguments._replace(input=later), backend=backend)[0]
        assert torch.equal(seen[:step], output[:step]), f"output before step {step}"
        earlier = seeds[0].clone()
        earlier[:step] = float("nan")
        seen = _per_row(case, arguments, [earlier, *seeds[1:]], backend)[3]
        assert torch.equal(seen[step:], d_input[step:]), f"d_input from step {step} on"
