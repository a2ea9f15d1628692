"""The kernels of random steps against the steps themselves, in float64.

A compilation takes longer than all the rest, so many steps share one: a cell whose scalars choose
the step, each of them 0 but one.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from test_cells_functor import Program, programs_of
from torch import Tensor

from lltm import cells
from lltm.cells import _reference
from lltm.cells._problem import Problem, results
from lltm.cells._run import run

pytestmark = pytest.mark.subprocess
COUNT = 8
BATCHES = 3, 5  # whose input is multiplied before the steps, and within them


@dataclass(frozen=True)
class Size:
    """Of a cell: a program with fewer gates or states leaves the others alone."""

    gates: int
    states: int
    split: bool


SIZES = (Size(2, 1, True), Size(3, 2, False), Size(4, 3, True), Size(5, 4, False))


@dataclass(frozen=True)
class Choice:
    """A step that is one of several."""

    programs: tuple[Program, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        """Of a step with a scalar for each program."""
        positional, keyword = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
        before = [inspect.Parameter(name, positional) for name in ("z", "state")]
        chosen = [
            inspect.Parameter(f"chosen_{index}", keyword, default=0.0)
            for index in range(len(self.programs))
        ]
        return inspect.Signature([*before, *chosen])

    def __call__(self, *arguments: Sequence[Tensor], **chosen: Any) -> tuple[Tensor, ...]:
        *z, state = arguments
        total = [0.5 * each for each in state]
        for program, factor in zip(self.programs, chosen.values(), strict=True):
            pieces = [share[: program.gates] for share in z]
            new = program.step(*pieces, state[: program.states])
            for index, each in enumerate(new):
                total[index] = total[index] + factor * each
        return tuple(total)


def drawn(size: Size) -> tuple[Program, ...]:
    """As Hypothesis draws them, the same ones every time."""
    found: list[Program] = []

    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs_of(size.gates, size.states))
    def collect(program: Program) -> None:
        found.append(dataclasses.replace(program, split=size.split))

    collect()
    return tuple(found)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_kernels_of_random_steps(size: Size) -> None:
    programs = drawn(size)
    assert len(programs) == COUNT
    cell = cells.define(Choice(programs), **dataclasses.asdict(size))
    assert cells.prepare(cell)
    for index, program in enumerate(programs):
        scalars = tuple(float(index == at) for at in range(COUNT))
        for heads, batch in product((1, 2, 4), BATCHES):
            with_heads = dataclasses.replace(cell, heads=heads)
            given_ = Problem(with_heads, steps=4, batch=batch, features=3, state=12).arguments()
            given_ = given_._replace(scalars=scalars)
            found = results(lambda each, of=with_heads: run(of, each), given_)
            right = results(lambda each, of=with_heads: _reference.sequence(of, each), given_)
            torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9, msg=str(program))
