"""The CUDA kernels, run on the CPU: the same source through a shim of CUDA's keywords.

What needs no GPU to be shown is shown here: values, gradients, indices, barriers, messages. What
does (streams, devices, graphs, the real compiler's code) is in test_cuda.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cases
import pytest
import torch
from cases import CASES, DTYPES, Case
from cuda_shim import library
from cuda_shim.library import Schedule
from torch import Tensor

import lltm

REASON = library.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}")

ids = cases.identify
NO_KERNEL_IMAGE, INVALID_CONFIGURATION = 209, 9
SCHEDULES = [(Schedule.REVERSE, 0), (Schedule.SHUFFLED, 1), (Schedule.SHUFFLED, 2)]
MANY = [
    Case("odd", 5, 7, 27),
    Case("wide", 40, 32, 128),
    Case("odd", 5, 7, 27, steps=6),
    Case("wide", 9, 16, 64, steps=4),
    Case("groups", 9, 3, 16, steps=4),
    Case("many_rows", 700, 3, 5, steps=2),
]
LARGE = [
    Case("s128", 5, 3, 128, steps=2),
    Case("rows", 30, 3, 33, steps=2),
    Case("s250", 3, 4, 250, steps=2),
    Case("s300", 2, 4, 300, steps=2),
    Case("s600", 2, 4, 600, steps=2),
]
WIDEST_FLOAT64 = 512


@pytest.fixture(scope="session")
def shim(request: pytest.FixtureRequest) -> Any:
    """The ops, in a namespace of their own."""
    cache = Path(request.config.cache.mkdir("cuda_shim"))
    return library.load(library.build(cache))


def run(shim: Any, case: Case, arguments: cases.Arguments) -> tuple[Tensor, ...]:
    outputs: tuple[Tensor, ...] = getattr(shim, case.op)(*arguments)
    return outputs


# Equal to the reference -------------------------------------------------------------------------


def check(case: Case, dtype: torch.dtype, shim: Any) -> None:
    """Outputs and gradients equal the reference's; inference and training agree bit for bit."""
    arguments = case.arguments(dtype)
    inferred = run(shim, case, arguments)
    leaves = arguments.leaves()
    outputs = run(shim, case, leaves)
    exact = cases.expected_outputs(case, arguments)
    for name, a, b, e in zip(cases.OUTPUT_NAMES[case.op], inferred, outputs, exact, strict=True):
        cases.assert_close(a, e, name)
        assert a.equal(b) or a.isnan().any(), f"{name} differs between inference and training"
    names = [n for n in cases.TENSOR_NAMES[case.op] if n != "bias" or arguments.bias is not None]
    expected = exact_gradients(case, leaves)
    for name, a, e in zip(names, cases.gradients(outputs, leaves), expected, strict=True):
        cases.assert_close(a, e, f"gradient of {name}")


def exact_gradients(case: Case, leaves: cases.Arguments) -> list[Tensor]:
    """The reference's; of the 16-bit dtypes in float64, rounded at the end.

    In its own 16 bits the reference rounds after every operation, and over many steps is further
    from the truth than the kernels are.
    """
    dtype = leaves.input.dtype
    if dtype in {torch.float32, torch.float64}:
        return cases.reference_gradients(case, leaves)
    wide = leaves.map(Tensor.double).leaves()
    outputs = case.reference(*wide)
    seeds = [seed.to(dtype).double() for seed in cases.cotangents(outputs)]
    loss = torch.stack([(o * s).sum() for o, s in zip(outputs, seeds, strict=True)]).sum()
    exact = torch.autograd.grad(loss, wide.tensors(), materialize_grads=True)
    return [gradient.to(dtype) for gradient in exact]


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_forward_and_gradients(case: Case, dtype: torch.dtype, shim: Any) -> None:
    check(case, dtype, shim)


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", cases.SEQUENCE_CASES, ids=ids)
def test_sequence_step_by_step(case: Case, dtype: torch.dtype, shim: Any) -> None:
    """On a GPU that is too small for the one launch."""
    with library.device(shim, multiprocessors=0):
        check(case, dtype, shim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=ids)
@pytest.mark.parametrize("case", LARGE, ids=ids)
def test_sequence_in_one_launch(case: Case, dtype: torch.dtype, shim: Any) -> None:
    """Every width of the kernel, several groups and tiles of rows, a state beyond float64's."""
    with library.device(shim, multiprocessors=40):
        _, cooperative, _ = shim.counts()
        check(case, dtype, shim)
        _, cooperative_after, _ = shim.counts()
    too_wide = dtype == torch.float64 and case.state > WIDEST_FLOAT64
    assert cooperative_after - cooperative == (0 if too_wide else 3)  # twice forward, backward


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize(("rows", "launches"), [(32, 3), (33, 0)])
def test_most_rows_of_a_group(rows: int, launches: int, dtype: torch.dtype, shim: Any) -> None:
    """A GPU with room for one group takes its rows in one launch, as long as that is faster."""
    case = Case("sequence", rows, 3, 16, steps=3)
    with library.device(shim, multiprocessors=1):
        _, before, _ = shim.counts()
        check(case, dtype, shim)
        _, after, _ = shim.counts()
    assert after - before == launches  # twice forward, backward


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_gradcheck_in_float64(op: str, shim: Any) -> None:
    """The historic kernels computed float64 in float32 and were marked as an expected failure."""
    case = cases.SMALL[op]
    arguments = case.arguments(torch.float64).leaves()
    alpha = arguments.alpha

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return run(shim, case, cases.Arguments(*tensors, alpha))

    assert torch.autograd.gradcheck(function, arguments.tensors())
    assert torch.autograd.gradgradcheck(function, arguments.tensors())


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_opcheck(op: str, shim: Any) -> None:
    case = cases.SMALL[op]
    torch.library.opcheck(getattr(shim, op).default, tuple(case.arguments().leaves()))


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_saved_tensors_have_the_shapes_of_the_cpu(op: str, shim: Any) -> None:
    """gate_weights were 2-D on CPU and 3-D on CUDA."""
    case = cases.SMALL[op]
    for a, e in zip(
        getattr(shim, f"{op}_forward")(*case.arguments()),
        case.raw("_forward")(*case.arguments()),
        strict=True,
    ):
        assert (a.shape, a.dtype, a.stride()) == (e.shape, e.dtype, e.stride())


# Barriers, order, bounds ------------------------------------------------------------------------


@pytest.mark.parametrize("case", MANY, ids=ids)
def test_any_order_of_threads_gives_the_same_bits(case: Case, shim: Any) -> None:
    """A missing barrier, or a sum in the order of arrival, would show."""
    arguments = case.arguments().leaves()

    def results() -> list[Tensor]:
        outputs = run(shim, case, arguments)
        return [*outputs, *cases.gradients(outputs, arguments)]

    first = results()
    for schedule, seed in SCHEDULES:
        with library.device(shim, schedule=schedule, seed=seed):
            for a, e in zip(results(), first, strict=True):
                assert a.equal(e), f"{schedule.name} differs"


def test_the_shim_notices_a_missing_barrier(shim: Any) -> None:
    seen = {}
    for what in ("race", "barrier"):
        orders = [(Schedule.FORWARD, 0), *SCHEDULES]
        seen[what] = []
        for schedule, seed in orders:
            with library.device(shim, schedule=schedule, seed=seed):
                seen[what].append(
                    tuple(shim.selftest(torch.zeros(64, dtype=torch.int64), what).tolist())
                )
    assert len(set(seen["race"])) > 1
    assert set(seen["barrier"]) == {tuple((i + 1) % 64 for i in range(64))}


@pytest.mark.parametrize("what", ["divided barrier", "endless wait"])
def test_the_shim_notices_a_deadlock(what: str, shim: Any) -> None:
    with pytest.raises(RuntimeError):
        shim.selftest(torch.zeros(64, dtype=torch.int64), what)


def test_address_and_undefined_behaviour_sanitizers(request: pytest.FixtureRequest) -> None:
    cache = Path(request.config.cache.mkdir("cuda_shim"))
    names = ("libasan.so", "libubsan.so")
    ask = [library.compiler(), "-print-file-name="]
    found = [
        subprocess.run(
            [ask[0], ask[1] + name], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip(f"not run: {ask[0]} has no {' or '.join(names)}")
    environment = {**os.environ, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    script = [sys.executable, str(library.HERE / "sanitized.py")]
    done = subprocess.run(
        [*script, str(library.build(cache, sanitize=True))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "cases, no finding" in done.stdout


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_no_bank_conflicts(dtype: torch.dtype, shim: Any) -> None:
    """From the kernels' own index arithmetic; a GPU's profiler would count the same."""
    assert shim.bank_conflicts(str(dtype).removeprefix("torch.")) == 0
    assert shim.bank_conflicts("all in one bank") == 31


# Sizes ------------------------------------------------------------------------------------------


def test_batch_beyond_a_grid_dimension(shim: Any) -> None:
    """The batch was on gridDim.y, which ends at 65535."""
    case = Case("batch_70000", 70_000, 1, 2)
    arguments = case.arguments().leaves()
    outputs = run(shim, case, arguments)
    for a, e in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(a, e, "batch 70000")
    expected = cases.reference_gradients(case, arguments)
    for a, e in zip(cases.gradients(outputs, arguments), expected, strict=True):
        cases.assert_close(a, e, "gradient, batch 70000")


@pytest.mark.parametrize("state", [64, 63], ids=["packs", "single"])
def test_more_elements_than_32_bits_can_count(state: int, shim: Any) -> None:
    """Only the last blocks run and only the last rows are touched, so it costs no memory."""
    rows = 2**31 // (3 * state) + 1000
    z = torch.empty(rows, 3 * state, dtype=torch.bfloat16)
    old_cell, new_h, new_cell = (torch.empty(rows, state, dtype=torch.bfloat16) for _ in range(3))
    assert z.numel() > 2**31
    last = 5
    z[-last:], old_cell[-last:] = torch.randn(last, 3 * state), torch.randn(last, state)
    pack = 8 if state % 8 == 0 else 1
    threads_of_a_block = 128
    first_thread = (rows - last) * state // pack
    with library.device(shim, first_block=first_thread // threads_of_a_block):
        shim.gates_forward(z, old_cell, new_h, new_cell)
    as_z = torch.cat([torch.zeros(3 * state, state), torch.eye(3 * state)], dim=1).bfloat16()
    no_h = torch.zeros(last, state, dtype=torch.bfloat16)
    expected = lltm.reference.cell(z[-last:], as_z, None, no_h, old_cell[-last:])
    for a, e in zip((new_h[-last:], new_cell[-last:]), expected, strict=True):
        cases.assert_close(a, e, "last rows")


@pytest.mark.parametrize("in_one_launch", [True, False])
def test_launches(in_one_launch: bool, shim: Any) -> None:
    """The input's product outside the loop; then one launch, or a product and a kernel a step."""
    case = Case("sequence", 3, 8, 16, steps=7)
    with library.device(shim, multiprocessors=4 if in_one_launch else 0):
        before = shim.counts()
        run(shim, case, case.arguments())
        launches, cooperative, products = (
            now - then for now, then in zip(shim.counts(), before, strict=True)
        )
    assert (launches, cooperative, products) == ((1, 1, 1) if in_one_launch else (7, 0, 8))


# Variants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=ids)
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_packed_accessors_equal_raw_pointers(alpha: float, dtype: torch.dtype, shim: Any) -> None:
    """The tutorial's form of the kernels, on transposed tensors, which raw pointers do not take."""
    case = Case("variant", 6, 5, 11, alpha=alpha)
    arguments = case.arguments(dtype)
    new_h, new_cell, saved = shim.cell_forward(*arguments)
    x = torch.cat([arguments.h, arguments.input], dim=1)
    z = torch.nn.functional.linear(x, arguments.weights, arguments.bias)
    variant = torch.ops.lltm_packed_accessor
    gates = z.view(6, 3, 11).transpose(0, 2).contiguous().transpose(0, 2)
    h, cell = torch.empty(11, 6, dtype=dtype).T, torch.empty(11, 6, dtype=dtype).T
    variant.forward(gates, arguments.c, h, cell, alpha)
    cases.assert_close(h, new_h, "new_h")
    cases.assert_close(cell, new_cell, "new_cell")
    cases.assert_close(gates.reshape(6, 33), saved, "gates")

    grad_h, grad_cell = (torch.randn_like(new_h) for _ in range(2))
    d_gates, d_old_cell = torch.empty_like(gates), torch.empty_like(cell)
    variant.backward(grad_h, grad_cell, gates, cell, d_gates, d_old_cell, alpha)
    needs = [False, False, arguments.bias is not None, False, True]
    expected = shim.cell_backward(grad_h, grad_cell, *arguments[:5], new_cell, saved, alpha, needs)
    cases.assert_close(d_old_cell, expected[4], "d_old_cell")
    cases.assert_close(d_gates.reshape(6, 33).sum(0), expected[2], "sum of d_gates")


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_the_tutorials_design_is_timed_for_the_right_results(op: str, shim: Any) -> None:
    """The competitor of `nox -s bench-cuda` that runs the packed-accessor kernels."""
    from benchmarks import cuda_competitors as there  # noqa: PLC0415 - needs the shim's ops

    case = cases.SMALL[op]
    function = {"cell": there.TutorialCell.apply, "sequence": there.tutorial_sequence}[op]
    leaves = case.arguments(torch.float64).leaves()
    outputs = function(*leaves)
    for a, e in zip(outputs, case.reference(*leaves), strict=True):
        cases.assert_close(a, e, "output")
    expected = cases.reference_gradients(case, leaves)
    for a, e in zip(cases.gradients(outputs, leaves), expected, strict=True):
        cases.assert_close(a, e, "gradient")


# Messages ---------------------------------------------------------------------------------------


def test_a_gpu_without_a_kernel_is_named(shim: Any) -> None:
    case = cases.SMALL["cell"]
    with library.device(shim, launch_error=NO_KERNEL_IMAGE), pytest.raises(RuntimeError) as caught:
        run(shim, case, case.arguments())
    message = str(caught.value)
    assert "GPU 0 (sm_70)" in message
    assert "sm_75, sm_80" in message
    assert "lltm.jit.load()" in message


def test_a_failed_launch_is_an_error(shim: Any) -> None:
    """The historic kernels checked no launch."""
    case = cases.SMALL["cell"]
    with (
        library.device(shim, launch_error=INVALID_CONFIGURATION),
        pytest.raises(RuntimeError, match="cudaErrorInvalidConfiguration"),
    ):
        run(shim, case, case.arguments())


def test_bad_arguments_are_named(shim: Any) -> None:
    case = cases.SMALL["cell"]
    arguments = case.arguments()
    with pytest.raises(RuntimeError, match=r"lltm::cell: weights must have shape \[3S, S \+ F\]"):
        run(shim, case, arguments._replace(weights=arguments.weights[:-1]))
