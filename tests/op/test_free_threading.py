"""Eight threads at once: the same bits as one thread alone, on CPythons with a GIL and without.

On a free-threaded CPython the GIL must stay off throughout: an extension module that does not
declare that it can do without would switch it on for the whole process.
"""

from __future__ import annotations

import copy
import sys
import sysconfig
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import cases
import pytest
import torch
from cases import SEQUENCE_CASES, Case
from installed_copy import InstalledCopy

import lltm
from lltm import cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

THREADS = 8
ROUNDS = 5
CASES = [Case("threads", 5, 7, 27), Case("threads", 5, 7, 27, steps=6)]
SIZES = [case for case in SEQUENCE_CASES if case.steps and case.steps < 10 and case.batch]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=cases.identify)
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
Result = TypeVar("Result")


def gil_is_on() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.fixture(autouse=True)
def often_switched() -> Iterator[None]:
    """Where there is a GIL, threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    assert gil_is_on() != FREE_THREADED


def at_once(work: Callable[[int], Result]) -> list[Result]:
    """What `work` of 0, 1, ... gives in threads that begin together."""
    barrier = threading.Barrier(THREADS)

    def begin(index: int) -> Result:
        torch.get_num_threads()  # until then a thread of torch 2.10 uses all cores
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def assert_same_bits(found: list[list[Tensor]], expected: list[Tensor]) -> None:
    for tensors in found:
        for one, other in zip(tensors, expected, strict=True):
            assert torch.equal(one, other)


def with_gradients(case: Case, backend: str, dtype: torch.dtype) -> list[Tensor]:
    leaves = case.arguments(dtype).leaves()
    outputs = case.function(*leaves, backend=backend)
    return [*outputs, *cases.gradients(outputs, leaves)]


@DTYPES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_ops_and_their_gradients(case: Case, dtype: torch.dtype, backend: str) -> None:
    expected = with_gradients(case, backend, dtype)

    def work(index: int) -> list[Tensor]:
        for _ in range(ROUNDS - 1):
            with_gradients(case, backend, dtype)
        return with_gradients(case, backend, dtype)

    assert_same_bits(at_once(work), expected)


def test_different_sizes_at_one_time() -> None:
    def results(case: Case) -> list[Tensor]:
        return [each.nan_to_num() for each in with_gradients(case, "fused", torch.float32)]

    expected = [results(case) for case in SIZES]

    def work(first: int) -> None:
        for at in range(first, first + ROUNDS * len(SIZES)):
            index = at % len(SIZES)
            assert_same_bits([results(SIZES[index])], expected[index])

    at_once(work)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_backward_through_one_graph(case: Case, compiled_backend: str) -> None:
    leaves = case.arguments().leaves()
    outputs = case.function(*leaves, backend=compiled_backend)
    total = sum(output.sum() for output in outputs)

    def work(index: int) -> list[Tensor]:
        return list(torch.autograd.grad(total, leaves.tensors(), retain_graph=True))

    assert_same_bits(at_once(work), work(0))


def trained(seed: int) -> list[Tensor]:
    """The weights of a model after a few steps on data of its own."""
    generator = torch.Generator().manual_seed(seed)
    model = lltm.LLTMSequence(4, 6, num_layers=2, bidirectional=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        model(torch.randn(5, 3, 4, generator=generator))[0].square().sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def test_models_trained_side_by_side() -> None:
    for found, seed in zip(at_once(trained), range(THREADS), strict=True):
        assert_same_bits([found], trained(seed))


def test_one_module_called_by_all() -> None:
    model = lltm.LLTMSequence(4, 6, num_layers=2)
    inputs = [torch.randn(5, 3, 4) for _ in range(THREADS)]

    def work(index: int) -> list[Tensor]:
        output, _ = model(inputs[index])
        return [output, *torch.autograd.grad(output.sum(), list(model.parameters()))]

    found = at_once(lambda index: [work(index) for _ in range(ROUNDS)])
    for index, rounds in enumerate(found):
        assert_same_bits(rounds, work(index))


@DTYPES
def test_streams_of_one_module(dtype: torch.dtype) -> None:
    model = lltm.LLTMSequence(4, 6, num_layers=2, dtype=dtype)
    inputs = torch.randn(20, 3, 4).to(dtype)

    def work(index: int) -> list[Tensor]:
        stream = model.stream(batch_size=3)
        return [stream.step(input).clone() for input in inputs]

    assert_same_bits(at_once(work), work(0))


def test_a_copy_in_every_thread() -> None:
    model = lltm.LLTM(4, 6)
    input, state = torch.randn(3, 4), (torch.zeros(3, 6), torch.zeros(3, 6))
    found = at_once(lambda index: list(copy.deepcopy(model)(input, state)))
    assert_same_bits(found, list(model(input, state)))


def decaying(z: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (state[0] / 2 + torch.tanh(z[0]),)


def test_cells_defined_at_once() -> None:
    def work(index: int) -> cells.Definition:
        # Another name, so that no thread finds what another one has traced.
        step = types.FunctionType(decaying.__code__, decaying.__globals__, f"decaying_{index}")
        return cells.define(step, gates=1, states=1)

    names = [definition.name for definition in at_once(work)]
    assert names == [f"decaying_{index}" for index in range(THREADS)]


AT_ONCE = """
import sys, sysconfig, threading, torch

barrier, failures = threading.Barrier(8), []

def begin():
    barrier.wait()
    try:
        work()
    except BaseException as error:
        failures.append(repr(error))

def work():
{work}

threads = [threading.Thread(target=begin) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled()
"""
IMPORT = """
    import lltm
    h, c = lltm.LLTM(3, 4)(torch.ones(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4)))
    h.sum().backward()
"""
JIT = """
    import lltm
    assert lltm.jit.load().name == "jit"
    arguments = [torch.ones(shape) for shape in ((2, 3), (12, 7), (12,), (2, 4), (2, 4))]
    lltm.lltm_cell(*arguments, backend="jit")
"""


@pytest.mark.subprocess
@pytest.mark.parametrize("work", [IMPORT, JIT], ids=["import", "jit"])
def test_the_first_use(work: str, tmp_path: Path) -> None:
    done = InstalledCopy.make(tmp_path).run("-c", AT_ONCE.format(work=work))
    assert done.returncode == 0, done.stderr
