"""CUDA beside the suites that take it as one more backend row: loading, streams, devices, graphs.

What needs a GPU is not run without one, and says so. The kernels' arithmetic without a GPU is in
test_cuda_shim.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cases
import pytest
import torch
from cases import Case
from cuda_variants import library
from torch import Tensor
from torch.autograd import DeviceType

import lltm
from lltm import _jit_cuda, _library

ids = cases.identify
KERNELS = "cuda" in _library.namespaces()
gpu = pytest.mark.skipif(
    not (KERNELS and torch.cuda.is_available()),
    reason="not run: it needs a GPU, a CUDA build of torch and a CUDA build of lltm",
)
two_gpus = pytest.mark.skipif(
    not KERNELS or torch.cuda.device_count() < 2, reason="not run: it needs two GPUs"
)
without_kernels = pytest.mark.skipif(KERNELS, reason="not run: the CUDA kernels are loaded")

OPS = [
    Case("cell", 16, 32, 128),
    Case("sequence", 9, 16, 64, steps=7),
    Case("odd", 5, 7, 27, steps=6),
]
DTYPES = [torch.float32, torch.bfloat16]


def python(program: str, **environment: str) -> None:
    """Run a program in a process of its own, outside the source tree."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(sys.executable).parent,
    )
    assert done.returncode == 0, done.stderr


# Loading ----------------------------------------------------------------------------------------


def test_import_initialises_no_cuda() -> None:
    """Else a process could neither fork nor choose its devices after ``import lltm``."""
    python(
        "import lltm, torch\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert 'libcuda.so' not in open('/proc/self/maps').read() or torch.cuda.is_available()\n"
    )


def test_kernels_are_registered_where_the_build_and_torch_have_cuda() -> None:
    wanted = _library.build().cuda is not None and torch.version.cuda is not None
    assert wanted == KERNELS
    assert wanted == any(row.name == "cuda" for row in lltm.backends.available())
    assert torch._C._dispatch_has_kernel_for_dispatch_key("lltm::cell", "CUDA")  # or the refusal


@without_kernels
def test_a_cuda_tensor_without_cuda_kernels_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(ValueError, match=r"no CUDA kernels; install .*lltm==\d+\.\d+\.\d+\+cu12"):
        lltm.backends.fastest("cuda")
    with pytest.raises(ValueError, match="conda install 'lltm=\\*=cuda\\*'"):
        lltm.backends.get("cuda")


@without_kernels
@pytest.mark.parametrize("case", list(cases.SMALL.values()), ids=ids)
def test_the_ops_themselves_refuse_cuda_tensors(case: Case) -> None:
    """Called past the backends, too, in place of the dispatcher's list of registrations."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    with pytest.raises(RuntimeError, match=f"lltm::{case.op}: .*CUDA"):
        case.raw().redispatch(key, *case.arguments())


LAYOUTS = ("SparseCUDA", "SparseCsrCUDA", "QuantizedCUDA", "NestedTensorCUDA")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", list(cases.SMALL.values()), ids=ids)
def test_other_layouts_of_a_gpu_are_refused_by_name(case: Case, layout: str) -> None:
    """As the dispatcher would call it; test_raw_ops.py has the tensors, where there is a GPU."""
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, layout))
    arguments = case.arguments()
    broken = arguments._replace(weights=arguments.weights.to_sparse())
    with pytest.raises(RuntimeError, match=f"lltm::{case.op}: weights must be a dense tensor"):
        case.raw().redispatch(key, *broken)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="not run: there is no nvcc on PATH")
def test_the_packed_accessors_compile_for_a_gpu(tmp_path: Path) -> None:
    """As `nox -s bench-cuda` builds them, to be timed beside the raw pointers."""
    assert library.build(tmp_path, "sm_90").stat().st_size > 0


# On a GPU ---------------------------------------------------------------------------------------


def results(case: Case, arguments: cases.Arguments) -> list[Tensor]:
    """Outputs and all gradients."""
    leaves = arguments.leaves()
    outputs = case.function(*leaves)
    return [*outputs, *cases.gradients(outputs, leaves)]


def assert_same(actual: list[Tensor], expected: list[Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert a.equal(e)


@gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_deterministic_bit_for_bit(case: Case, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype, "cuda")
    first = results(case, arguments)
    for _ in range(20):
        assert_same(results(case, arguments), first)


@gpu
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_second_stream(case: Case) -> None:
    """The historic kernels ran on the default stream, whatever the current one was."""
    arguments = case.arguments(device="cuda")
    expected = results(case, arguments)
    stream = torch.cuda.Stream()
    late = arguments.map(torch.zeros_like)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # a kernel on another stream would read the zeros
        for to, value in zip(late.tensors(), arguments.tensors(), strict=True):
            to.copy_(value)
        actual = results(case, late)
    stream.synchronize()
    assert_same(actual, expected)


@two_gpus
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_device_of_the_tensors_and_not_the_current_one(case: Case) -> None:
    expected = results(case, case.arguments(device="cuda:0"))
    with torch.cuda.device(0):
        actual = results(case, case.arguments(device="cuda:1"))
        assert torch.cuda.current_device() == 0
    assert all(tensor.device.index == 1 for tensor in actual)
    assert_same([tensor.to("cuda:0") for tensor in actual], expected)


@gpu
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_no_host_synchronisation(case: Case) -> None:
    arguments = case.arguments(device="cuda").leaves()
    seeds = cases.cotangents(case.function(*arguments))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        outputs = case.function(*arguments)
        torch.autograd.grad(outputs, arguments.tensors(), seeds)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_graph_capture_and_replay(case: Case, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype, "cuda").leaves()

    def step() -> list[Tensor]:
        outputs = case.function(*arguments)
        return [*outputs, *torch.autograd.grad(outputs, arguments.tensors(), seeds)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # what autograd keeps of another stream ends a capture
        seeds = cases.cotangents(case.function(*arguments))
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        arguments.input.mul_(0.5)
    graph.replay()
    assert_same(captured, step())


@gpu
def test_graphed_module() -> None:
    """The way for a user: a sequence's launches in one graph."""
    module = lltm.LLTMSequence(16, 64, device="cuda")
    x = torch.randn(7, 9, 16, device="cuda")
    expected = module(x)[0].detach()
    graphed = torch.cuda.make_graphed_callables(module, (x.clone(),))
    assert graphed(x)[0].equal(expected)


@gpu
def test_cuda_malloc_async() -> None:
    """Another allocator, under which memory freed too early is soon another tensor's."""
    python(
        "import torch, lltm\n"
        "x = torch.randn(64, 16, 32, device='cuda')\n"
        "module = lltm.LLTMSequence(32, 128, device='cuda')\n"
        "first = module(x)[0].clone()\n"
        "for _ in range(50):\n"
        "    y, _ = module(x); y.sum().backward(); assert y.equal(first)\n",
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
    )


@gpu
@pytest.mark.parametrize("steps", [None, 2])
def test_batch_beyond_a_grid_dimension(steps: int | None) -> None:
    """The historic kernels had the batch on gridDim.y, which ends at 65535."""
    case = Case("batch_70000", 70_000, 3, 8, steps=steps)
    on_gpu, on_cpu = results(case, case.arguments(device="cuda")), results(case, case.arguments())
    for a, e in zip(on_gpu, on_cpu, strict=True):
        cases.assert_close(a.cpu(), e, "batch 70000")


@gpu
def test_more_elements_than_32_bits_can_count() -> None:
    rows, state = 2**31 // (3 * 256) + 1000, 256
    free, _ = torch.cuda.mem_get_info()
    if free < 24 * 2**30:
        pytest.skip("not run: it needs 24 GiB of free GPU memory")
    arguments = Case("huge", 8, 1, state).arguments(torch.bfloat16, "cuda")
    huge = arguments._replace(
        input=arguments.input.repeat(rows // 8, 1),
        h=arguments.h.repeat(rows // 8, 1),
        c=arguments.c.repeat(rows // 8, 1),
    )
    small, large = lltm.lltm_cell(*arguments), lltm.lltm_cell(*huge)
    for a, e in zip(large, small, strict=True):
        assert a[-8:].equal(e)
        assert a[:8].equal(e)


@gpu
@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_float64_gradcheck(op: str) -> None:
    """The historic extension marked it as an expected failure."""
    case = cases.SMALL[op]
    arguments = case.arguments(torch.float64, "cuda").leaves()

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return case.function(*tensors, arguments.alpha)

    assert torch.autograd.gradcheck(function, arguments.tensors())
    assert torch.autograd.gradgradcheck(function, arguments.tensors())


@gpu
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_autocast(case: Case) -> None:
    arguments = case.arguments(device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        outputs = case.function(*arguments)
    expected = case.function(*arguments.map(torch.Tensor.bfloat16))
    assert_same(list(outputs), list(expected))


@gpu
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_equal_to_the_cpu(case: Case) -> None:
    """The devices agree with each other, not only each with its own reference."""
    on_gpu, on_cpu = results(case, case.arguments(device="cuda")), results(case, case.arguments())
    for a, e in zip(on_gpu, on_cpu, strict=True):
        cases.assert_close(a.cpu(), e, "cuda against cpu")


@gpu
def test_a_profile_shows_one_product_and_one_kernel_a_step() -> None:
    case = Case("large", 256, 64, 2048, steps=5)
    arguments = case.arguments(device="cuda")
    case.function(*arguments)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        case.function(*arguments)
        torch.cuda.synchronize()
    on_gpu = [e.name for e in profile.events() if e.device_type == DeviceType.CUDA]
    # A product may be of two kernels, that of a part of the sums and that of their sum.
    other = [name for name in on_gpu if not re.match(r"Mem(cpy|set)|.*splitKreduce", name)]
    assert sum("forward_kernel" in name for name in other) == 5
    assert len(other) <= 1 + 2 * 5, other


@gpu
@pytest.mark.parametrize("case", OPS, ids=ids)
def test_a_just_in_time_build_for_this_gpu_gives_the_same_bits(case: Case) -> None:
    """What is left to whose GPU the wheel has no code for."""
    if (reason := _jit_cuda.unavailable_reason()) is not None:
        pytest.skip(f"not run: {reason}")
    lltm.jit.load()
    arguments = case.arguments(device="cuda")
    built_here = case.function(*arguments, backend="jit_cuda")
    assert_same(list(built_here), list(case.function(*arguments, backend="cuda")))
