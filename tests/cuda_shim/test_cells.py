"""The CUDA kernels of every cell that ships, from its generated functor, run on the CPU."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_shim import library

from lltm import cells
from lltm.cells import formulas
from lltm.cells._functor import functor
from lltm.cells._kernel_checks import SLACK, is_as_near_as_eager
from lltm.cells._problem import Problem
from lltm.cells._registration import register

REASON = library.unavailable_reason()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}"),
    pytest.mark.subprocess,
]

# T, B, F, S, H: several tiles of rows, groups and blocks; odd sizes, and packs of every dtype.
SHAPES = ((4, 3, 5, 16, 1), (3, 9, 2, 10, 1), (3, 2, 3, 33, 1))
WITH_HEADS = ((4, 3, 5, 16, 2), (3, 2, 3, 12, 4))
# In 16 bits one of so many elements is near enough to where an sLSTM's maximum or an RNN's ReLU
# changes sides, and its derivative with it: eager itself is off by 15 % of bfloat16's sLSTM then.
LARGE = (2, 3, 4, 256, 1)
CASES = [(shape, dtype) for shape in (*SHAPES, *WITH_HEADS) for dtype in SLACK]
CASES += [(LARGE, dtype) for dtype in (torch.float32, torch.float64)]


@dataclasses.dataclass(frozen=True)
class Built:
    """A cell and its ops."""

    cell: cells.Definition
    ops: Any

    def problem(self, shape: tuple[int, ...], dtype: torch.dtype) -> Problem:
        *sizes, heads = shape
        return Problem(dataclasses.replace(self.cell, heads=heads), *sizes, dtype)

    def check(self, problem: Problem, **episodes: bool) -> None:
        given = problem.arguments(**episodes)
        is_as_near_as_eager(lambda each: self.ops.sequence(*each), problem.cell, given)


@functools.cache
def load(cell: cells.Definition, cache: Path) -> Built:
    made, namespace = functor(cell), f"lltm_cuda_shim_{cell.name}"
    torch.ops.load_library(library.build_cell(cache, made, namespace))
    register(namespace, cell, made.saved)
    return Built(cell, getattr(torch.ops, namespace))


@pytest.fixture(params=formulas.SHIPPED, ids=lambda cell: cell.name)
def built(request: pytest.FixtureRequest) -> Built:
    return load(request.param, Path(request.config.cache.mkdir("cuda_shim")))


@pytest.mark.parametrize("in_one_launch", [True, False], ids=["one_launch", "step_by_step"])
@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_it_equals_the_step_in_pytorch(
    built: Built, shape: tuple[int, ...], dtype: torch.dtype, in_one_launch: bool
) -> None:
    with library.device(built.ops, multiprocessors=40 if in_one_launch else 0):
        _, before, _ = built.ops.counts()
        built.check(built.problem(shape, dtype), reset=False)
        _, after, _ = built.ops.counts()
    assert after - before == (2 if in_one_launch else 0)  # forward, backward


@pytest.mark.parametrize("start", [False, True], ids=["zeros", "reset_state"])
@pytest.mark.parametrize("dtype", SLACK, ids=str)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], WITH_HEADS[1]], ids=str)
def test_rows_begin_again(
    built: Built, shape: tuple[int, ...], dtype: torch.dtype, start: bool
) -> None:
    built.check(built.problem(shape, dtype), start=start)


@pytest.mark.parametrize("in_one_launch", [True, False], ids=["one_launch", "step_by_step"])
@pytest.mark.parametrize("shape", [SHAPES[1], WITH_HEADS[0]], ids=str)
def test_weights_may_be_apart_and_nothing_kept(
    built: Built, shape: tuple[int, ...], in_one_launch: bool
) -> None:
    given = built.problem(shape, torch.float64).arguments(reset=False)
    parts = given.weights.tensor_split([given.state_columns()], dim=1)
    apart = given._replace(weights=parts[0], input_weights=parts[1])
    with library.device(built.ops, multiprocessors=40 if in_one_launch else 0):
        expected = built.ops.sequence(*given)
        torch.testing.assert_close(built.ops.sequence(*apart), expected)
        output, last, *_ = built.ops.sequence_forward(*given.of_backward())
    assert all(map(torch.equal, (output, last), expected))


def test_no_steps_leave_the_states(built: Built) -> None:
    given = built.problem((0, 2, 3, 6, 1), torch.float64).arguments(reset=False).of_backward()
    output, last, *saved = built.ops.sequence_forward(*given)
    states = given[3]
    assert torch.equal(last, states)
    grad = torch.randn_like(states)
    needs = [True, True, True, True, False]
    gradients = built.ops.sequence_backward(None, grad, *given, output, *saved, needs)
    assert torch.equal(gradients[3], grad)
    assert not any(gradient.any() for gradient in gradients[:3])


@pytest.mark.parametrize("built", [formulas.LSTM], indirect=True, ids=["lstm"])
def test_a_gpu_with_little_shared_memory_takes_the_steps_one_by_one(built: Built) -> None:
    """Of four gates and 1024 states more is staged than a block of sm_75 has room for."""
    with library.device(built.ops, multiprocessors=80):
        before = built.ops.counts()
        built.check(built.problem((2, 1, 2, 600, 1), torch.float32), reset=False)
        after = built.ops.counts()
    assert after[1] == before[1]
    assert after[0] > before[0]
