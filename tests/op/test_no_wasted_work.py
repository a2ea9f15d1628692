"""Nothing is computed, kept or written that nobody asked for."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import mmap
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cases
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import lltm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

OPS = ("cell", "sequence")
READS_PROC = pytest.mark.skipif(sys.platform != "linux", reason="not run: it reads /proc")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
SUBSETS = [needs for needs in itertools.product((False, True), repeat=5) if any(needs)]


class Recorder(TorchDispatchMode):
    """Keeps each call of an op of lltm that reaches a kernel: name, arguments, results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "lltm":
            self.calls.append((func.name(), args, result))
        return result


def _identity(tensor: Tensor) -> Tensor:
    return tensor


@pytest.mark.parametrize("needs", SUBSETS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_only_the_gradients_that_are_asked_for(op: str, needs: tuple[bool, ...]) -> None:
    case = cases.SMALL[op]
    leaves = case.arguments().leaves(needs)
    outputs = case.function(*leaves, backend="fused")
    with Recorder() as recorder:
        cases.loss(outputs).backward()
    (name, arguments, results) = recorder.calls[-1]
    assert name == f"lltm::{op}_backward"
    assert tuple(arguments[-1]) == needs
    assert tuple(bool(result.numel()) for result in results) == needs
    grads = tuple(tensor.grad is not None for tensor in leaves.tensors())
    assert grads == needs


ORIGINS = (
    pytest.param(
        _identity,
        id="leaves",
        marks=pytest.mark.skipif(
            "native" not in lltm._library.namespaces(),
            reason="not run: a leaf is taken to be wanted; to ask the engine would cost too much",
        ),
    ),
    pytest.param(torch.Tensor.clone, id="results"),
)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("op", OPS)
def test_autograd_grad_in_one_argument_computes_one_gradient(
    op: str, origin: Callable[[Tensor], Tensor]
) -> None:
    """All arguments require grad, one is asked for: the others' GEMMs do not run."""
    case = cases.SMALL[op]
    arguments = case.arguments().leaves().map(origin)
    for index, tensor in enumerate(arguments.tensors()):
        outputs = case.function(*arguments, backend="fused")
        with Recorder() as recorder:
            torch.autograd.grad(cases.loss(outputs), tensor)
        assert list(recorder.calls[-1][1][-1]) == [i == index for i in range(5)]


def _saved(run: Callable[[], Any]) -> int:
    """How many tensors the graph of ``run`` keeps for backward."""
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, _identity):
        outputs = run()
        del outputs
    return len(kept)


@pytest.mark.parametrize("op", OPS)
def test_nothing_is_saved_where_no_gradient_is_needed(op: str, backend: str) -> None:
    case = cases.SMALL[op]
    plain = case.arguments()
    leaves = plain.leaves()

    def call(arguments: cases.Arguments) -> tuple[Tensor, ...]:
        return case.function(*arguments, backend=backend)

    assert _saved(lambda: call(leaves)) > 0
    assert _saved(lambda: call(plain)) == 0
    assert all(output.grad_fn is None for output in call(plain))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert _saved(lambda: call(leaves)) == 0
            assert not any(output.requires_grad for output in call(leaves))


@pytest.mark.parametrize("op", OPS)
def test_kernels_without_gradients_return_nothing_to_save(op: str) -> None:
    """Without gradients the plain kernel runs, not the one that writes gates for backward."""
    case = cases.SMALL[op]
    for arguments, expected in (
        (case.arguments(), f"lltm::{op}"),
        (case.arguments().leaves(), f"lltm::{op}_forward"),
    ):
        with Recorder() as recorder:
            case.function(*arguments, backend="fused")
        assert [name for name, _, _ in recorder.calls] == [expected]


@pytest.mark.parametrize("op", OPS)
def test_no_buffer_is_zero_filled(op: str) -> None:
    """Every operation of torch that the kernels call is seen by the profiler."""
    case = cases.Case("profiled", 8, 6, 10, steps=None if op == "cell" else 3)
    leaves = case.arguments().leaves()
    outputs = case.function(*leaves, backend="fused")
    seeds = cases.cotangents(outputs)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        outputs = case.function(*leaves, backend="fused")
        torch.autograd.grad(outputs, leaves.tensors(), seeds)
    names = {event.name for event in profiler.events()}
    assert f"lltm::{op}_forward" in names, names
    assert f"lltm::{op}_backward" in names, names
    assert not names & {"aten::zeros", "aten::zeros_like", "aten::zero_", "aten::fill_"}, names
    assert not names & {"aten::cat", "aten::stack", "aten::clone"}, names


@pytest.mark.parametrize("op", OPS)
def test_saved_tensors_are_those_of_the_contract(op: str) -> None:
    """Gates are [B, 3S] ([T, B, 3S]) on every device: the historic kernels kept two layouts."""
    case = cases.SMALL[op]
    results = case.raw("_forward")(*case.arguments())
    on_meta = case.raw("_forward")(*case.arguments(device="meta"))
    lead = (case.batch,) if op == "cell" else (case.steps, case.batch)
    assert results[-1].shape == (*lead, 3 * case.state)
    for actual, fake in zip(results, on_meta, strict=True):
        assert actual.shape == fake.shape
        assert actual.stride() == fake.stride()
        assert actual.dtype == fake.dtype


def resident_pages() -> int:
    """Of the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@READS_PROC
@pytest.mark.parametrize("op", OPS)
def test_no_memory_is_kept_for_each_call(op: str) -> None:
    """Forward and backward use over 1 MiB of room in a call, and have it again in the next."""
    sizes = (4096, None) if op == "cell" else (512, 8)
    case = cases.Case("many rows", sizes[0], 16, 16, steps=sizes[1])
    leaves = case.arguments().leaves()
    calls = 64

    def call() -> None:
        outputs = case.function(*leaves, backend="fused")
        torch.autograd.grad(cases.loss(outputs), leaves.tensors())

    for _ in range(8):
        call()
    before = resident_pages()
    for _ in range(calls):
        call()
    kept = (resident_pages() - before) * mmap.PAGESIZE
    assert kept < calls << 19, f"{kept / calls:.0f} bytes for a call"


def mapped_pages() -> int:
    """Of the addresses of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0])


def page_faults() -> int:
    """So far, of this process, that needed no reading."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7])


PR_SET_THP_DISABLE = 41


@pytest.fixture
def small_pages() -> Iterator[None]:
    """For this process: a fault of a huge page would count as one, whatever its size."""
    if not HUGE_PAGES.exists():
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    yield
    assert prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0


def bytes_faulted_in(call: Callable[[], object], before_each: Callable[[], object]) -> float:
    """In a call, once it has been made a few times."""
    faults, calls = 0, 8
    for index in range(-4, calls):
        before_each()
        before = page_faults()
        call()
        faults += page_faults() - before if index >= 0 else 0
    return faults * mmap.PAGESIZE / calls


# Their weights are packed, which those of fewer steps are not.
WIDE = cases.Case("wide", 1, 256, 512, steps=16)  # 3 MiB
LARGE = cases.Case("large", 1, 1, 2048, steps=16)  # 48 MiB, which no thread keeps


@READS_PROC
@pytest.mark.usefixtures("small_pages")
def test_other_sizes_before_cost_no_page_faults() -> None:
    """A thread keeps the room of its last calls, not that of its first ones."""
    arguments = WIDE.arguments()
    for batch, state in itertools.product((1, 3, 8, 37, 256), (16, 33, 128, 256)):
        case = cases.Case("other", batch, 32, state, steps=4)
        leaves = case.arguments().leaves()
        outputs = case.function(*leaves, backend="fused")
        torch.autograd.grad(cases.loss(outputs), leaves.tensors())
    assert bytes_faulted_in(lambda: WIDE.function(*arguments, backend="fused"), int) < 1 << 18


@READS_PROC
@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(("others", "state"), [(0, LARGE.state), (2, 1408)])
def test_room_that_cannot_be_kept_costs_other_calls_no_page_faults(others: int, state: int) -> None:
    """Too large to keep, or too large beside what other threads keep."""
    arguments = WIDE.arguments()
    large = dataclasses.replace(LARGE, state=state)  # 48 or 22 MiB
    of_large = large.arguments()
    all_here = threading.Barrier(others + 1)

    def keep_room() -> None:
        large.function(*of_large, backend="fused")
        all_here.wait(60)

    with ThreadPoolExecutor(max(others, 1)) as threads:
        for _ in range(others):
            threads.submit(keep_room)
        all_here.wait(60)
        faulted_in = bytes_faulted_in(
            lambda: WIDE.function(*arguments, backend="fused"),
            lambda: large.function(*of_large, backend="fused"),
        )
    assert faulted_in < 1 << 18


@READS_PROC
def test_room_that_is_not_kept_takes_no_addresses() -> None:
    """What is mapped beside a block to align it goes back, and the block after the call."""
    arguments, calls = LARGE.arguments(), 16
    LARGE.function(*arguments, backend="fused")
    before = mapped_pages()
    for _ in range(calls):
        LARGE.function(*arguments, backend="fused")
    assert (mapped_pages() - before) * mmap.PAGESIZE < calls << 20


@pytest.mark.skipif(
    not HUGE_PAGES.exists(), reason="not run: this system has no huge pages to ask for"
)
def test_large_room_asks_for_huge_pages() -> None:
    WIDE.function(*WIDE.arguments(), backend="fused")
    flags = re.findall(r"^VmFlags:(.*)$", Path("/proc/self/smaps").read_text(), re.MULTILINE)
    assert any("hg" in each.split() for each in flags)
