"""The benchmark's own parts: rounds are interleaved, floors count right, wrong results are out."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import cases
import pytest
import torch
from cases import BENCHMARK_CASES, SMALL, Case
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import bench_cells, competitors, contest, floors, jax_scan, racing, workloads
from benchmarks.competitors import EAGER, OTHER, Competitor
from benchmarks.not_here import NotHere
from benchmarks.workloads import Problem, Row
from lltm import cells
from lltm.cells import _reference, formulas

SEQUENCE = Row(SMALL["sequence"], torch.float32, 1, workloads.TRAINING_STEP)


# Rounds -----------------------------------------------------------------------------------------


class Clock:
    """A clock that only moves when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def worker(self, seconds: Callable[[], float]) -> racing.Prepare:
        def work() -> None:
            self.now += seconds()

        return lambda count: [work] * count


def test_every_round_times_everyone_once_in_changing_order() -> None:
    clock, log = Clock(), []

    def logged(name: str) -> racing.Prepare:
        worker = clock.worker(lambda: 1.0)

        def prepare(count: int) -> list[workloads.Call]:
            log.append(name)
            return worker(count)

        return prepare

    times = racing.race({name: logged(name) for name in "abc"}, 0.0, racing.by_clock(clock))
    rounds = [log[-at : len(log) - at + 3] for at in range(3 * racing.ROUNDS[0], 0, -3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1
    assert {name: len(each) for name, each in times.items()} == dict.fromkeys(
        "abc", racing.ROUNDS[0]
    )


def test_a_machine_that_slows_down_leaves_the_ratio_alone() -> None:
    clock, generator = Clock(), random.Random(1)
    load = 1.0

    def drifting(seconds: float) -> racing.Prepare:
        def spent() -> float:
            nonlocal load
            load *= 1 + 0.1 * generator.random()
            return seconds * load

        return clock.worker(spent)

    times = racing.race(
        {"slow": drifting(2e-2), "fast": drifting(1e-2)}, 0.0, racing.by_clock(clock)
    )
    assert times["fast"][-1] > 1.3 * times["fast"][0]
    ratios = [slow / fast for slow, fast in zip(times["slow"], times["fast"], strict=True)]
    assert contest.middle(ratios)[0] == pytest.approx(2.0, rel=0.05)


def test_short_calls_are_timed_several_at_a_time() -> None:
    clock = Clock()
    counts = []

    def prepare(count: int) -> list[workloads.Call]:
        counts.append(count)
        return clock.worker(lambda: racing.BLOCK_SECONDS / 10)(count)

    times = racing.race({"short": prepare}, 0.0, racing.by_clock(clock))
    assert counts[-1] == 10
    assert times["short"] == pytest.approx([racing.BLOCK_SECONDS / 10] * racing.ROUNDS[0])


# Floors -----------------------------------------------------------------------------------------


def premultiplied_cell(
    input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """The cell without X, whose gradient would be computed for both of its parts."""
    state = h.size(1)
    z = F.linear(input, weights[:, state:], bias)
    return competitors.step(z, weights[:, :state], h, c, alpha)


@pytest.mark.parametrize("work", workloads.WORKS, ids=lambda work: work.name)
@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=lambda case: f"{case.op}-{case.name}")
def test_the_floor_counts_the_products_that_torch_counts(
    case: workloads.Case, work: workloads.Work
) -> None:
    few = case if case.steps is None else replace(case, steps=3)  # the others count as the second
    row = Row(few, torch.float32, 1, work)
    function = {"cell": premultiplied_cell, "sequence": competitors.premultiplied}[case.op]
    with contest.setting(row):
        arguments = competitors.arguments(row)
        leaves = [tensor for tensor in arguments.tensors() if tensor.requires_grad]
        problem = Problem(partial(function, *arguments), arguments.tensors(), leaves)
        (call,) = work.calls(problem, 1)
        with FlopCounterMode(display=False) as counter:
            call()
    assert floors.flops(row) == counter.get_total_flops()


def test_the_blas_floor_makes_its_products_and_nothing_else() -> None:
    (call,) = floors.blas(SEQUENCE)(1)
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == floors.flops(SEQUENCE)


# On a GPU ---------------------------------------------------------------------------------------

CELL = Row(Case("cell", 2, 3, 5), torch.float32, 1, workloads.FORWARD, "cuda")
# input, weights, bias, h, c; and the outputs
ARGUMENTS, OUTPUTS = 6 + 15 * 8 + 15 + 10 + 10, 20


@pytest.mark.parametrize(
    ("work", "elements"),
    [
        (workloads.FORWARD, ARGUMENTS + OUTPUTS),
        (workloads.INFERENCE, ARGUMENTS + OUTPUTS),
        # The input asks for no gradient.
        (workloads.BACKWARD, 2 * ARGUMENTS - 6 + OUTPUTS),
        (workloads.TRAINING_STEP, 2 * ARGUMENTS - 6 + 2 * OUTPUTS),
    ],
    ids=lambda value: value.name if isinstance(value, workloads.Work) else "",
)
def test_the_byte_floor_moves_every_argument_and_result_once(
    work: workloads.Work, elements: int
) -> None:
    assert floors.moved_bytes(replace(CELL, work=work)) == 4 * elements
    assert floors.moved_bytes(replace(CELL, work=work, dtype=torch.bfloat16)) == 2 * elements


@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=lambda case: f"{case.op}-{case.name}")
def test_the_byte_floor_counts_the_tensors_that_there_are(case: workloads.Case) -> None:
    row = Row(case, torch.float32, 1, workloads.FORWARD)
    arguments = competitors.arguments(row)
    tensors = [*arguments.tensors(), *case.reference(*arguments)]
    assert floors.moved_bytes(row) == sum(tensor.nbytes for tensor in tensors)


def test_the_rates_turn_into_the_floors_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "SQUARE", 8)
    monkeypatch.setattr(floors, "COPY_BYTES", 1024)
    row = replace(CELL, device="cpu")
    prepare, factor = floors.flop_rate(row)
    assert factor * 2 * 8**3 == floors.flops(row)
    (call,) = prepare(1)
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == 2 * 8**3
    _, factor = floors.byte_rate(row)
    assert factor * 2 * 1024 == floors.moved_bytes(row)
    floors.square_operands.cache_clear()
    floors.copy_operands.cache_clear()


def test_a_gpu_is_timed_by_its_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None:
            log.append("synchronize")

        def elapsed_time(self, end: Event) -> float:
            return 250.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert racing.stopwatch(CELL)([lambda: log.append("call")] * 2) == 0.25
    assert log == ["record", "call", "call", "record", "synchronize"]


def test_the_outputs_gradients_are_made_once_for_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = cases.cotangents
    monkeypatch.setattr(cases, "cotangents", lambda outputs: made.append(1) or make(outputs))
    outputs = tuple(torch.zeros(2, 3, 5, dtype=torch.float64) for _ in range(2))
    first, again = (workloads.cotangents(outputs) for _ in range(2))
    assert len(made) == 1
    assert all(a is b for a, b in zip(first, again, strict=True))
    assert all(a.equal(b) for a, b in zip(first, make(outputs), strict=True))
    assert workloads.cotangents([outputs[0].half()])[0].dtype == torch.float16


def test_the_rows_of_a_gpu_are_those_declared() -> None:
    rows = list(workloads.cuda())
    assert len({row.name for row in rows}) == len(rows) == 3 * 6 * 4
    assert {row.fields()["dtype"] for row in rows} == {"float32", "tf32", "bfloat16"}


@pytest.mark.parametrize(
    ("op", "scope", "dtype", "compiles"),
    [
        ("cell", "quick", torch.float32, True),
        ("sequence", "quick", torch.float32, False),
        ("sequence", "full", torch.float32, True),
        ("sequence", "full", torch.bfloat16, False),
        ("sequence", "cuda", torch.bfloat16, True),
    ],
)
def test_compilers_race_where_they_end_and_are_wanted(
    op: str, scope: str, dtype: torch.dtype, compiles: bool
) -> None:
    row = next(row for row in workloads.full() if row.case.op == op and row.dtype == dtype)
    for wanted in (True, False):
        chosen = competitors.taking_part(competitors.OTHERS, row, scope, compilers=wanted)
        names = {competitor.name for competitor in chosen}
        assert ("compile" in names) == (compiles and wanted)
        assert "eager" in names


def test_a_cell_is_raced_without_torch_compile_on_request() -> None:
    with_it, without = (bench_cells.heats(compilers=wanted)[0].names for wanted in (True, False))
    assert [name for name in with_it if name not in without] == ["compile"]


def test_tf32_is_a_setting_of_its_rows_alone() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for tf32, precision in ((True, "high"), (False, "highest")):
        with contest.setting(replace(CELL, tf32=tf32)):
            assert torch.get_float32_matmul_precision() == precision
            assert torch.backends.cudnn.allow_tf32 is tf32
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_who_cannot_take_part_is_told_and_the_others_are_timed() -> None:
    def problem(row: Row) -> Problem:
        raise NotHere("it is not installed")

    absent = Competitor("absent", OTHER, None, competitors.BOTH, problem, "")
    held = contest.hold(SEQUENCE, [EAGER, absent], 0.0, with_floors=False)
    assert held.not_run == {"absent": "it is not installed"}
    assert list(held.seconds) == ["eager"]


# Results ----------------------------------------------------------------------------------------


def off_by(part: float) -> Competitor:
    """Eager with one element of each output off by a part."""

    def shifted(output: Tensor) -> Tensor:
        wrong = torch.ones_like(output)
        wrong.view(-1)[-1] += part
        return output * wrong

    def problem(row: Row) -> Problem:
        right = EAGER.problem(row)
        call = right.call
        return replace(right, call=lambda: tuple(map(shifted, call())))

    return Competitor("off", OTHER, None, competitors.BOTH, problem, "a wrong one")


@pytest.mark.parametrize("case", [SMALL["sequence"], BENCHMARK_CASES[-1]], ids=["small", "long"])
@pytest.mark.parametrize("work", [workloads.TRAINING_STEP, workloads.INFERENCE])
def test_a_wrong_result_is_named_and_not_timed(case: workloads.Case, work: workloads.Work) -> None:
    row = replace(SEQUENCE, case=case, work=work)
    held = contest.hold(row, [EAGER, off_by(1e-2)], 0.0, with_floors=False)
    assert list(held.seconds) == ["eager"]
    assert f"{row.name} by off" in held.wrong["off"]


def test_a_right_result_is_timed_and_weighed() -> None:
    held = contest.hold(SEQUENCE, [EAGER, off_by(0.0)], 0.0, with_floors=False)
    contest.weigh(held, [EAGER, off_by(0.0)])
    assert held.wrong == {}
    assert list(held.seconds) == ["eager", "off"]
    assert held.saved_bytes["eager"] > 0
    assert held.high_water_bytes["off"] > 0


def test_who_took_its_memory_before_the_call_is_not_weighed() -> None:
    eager = replace(EAGER, problem=lambda row: replace(EAGER.problem(row), allocates=False))
    held = contest.hold(SEQUENCE, [eager], 0.0, with_floors=False)
    contest.weigh(held, [eager])
    assert (held.saved_bytes, held.high_water_bytes) == ({}, {})


def test_inference_saves_nothing_and_asks_for_no_gradient() -> None:
    row = replace(SEQUENCE, work=workloads.INFERENCE)
    held = contest.hold(row, [EAGER], 0.0, with_floors=False)
    contest.weigh(held, [EAGER])
    assert held.saved_bytes == {}
    assert EAGER.problem(row).leaves == []


# Other frameworks ---------------------------------------------------------------------------------

DTYPES = pytest.mark.parametrize("dtype", workloads.DTYPES, ids=str)
WORKS = pytest.mark.parametrize("work", workloads.WORKS, ids=lambda work: work.name)


def timed(name: str, row: Row) -> contest.Contest:
    """The row with eager and one other, whose result was right."""
    (other,) = (c for c in competitors.everyone() if c.name == name)
    held = contest.hold(row, [EAGER, other], 0.0, with_floors=False)
    assert held.wrong == {}
    assert not other.takes_part(row) or list(held.seconds) == ["eager", name]
    return held


@WORKS
@DTYPES
def test_jax_computes_the_sequence_and_its_compile_time_is_kept(
    dtype: torch.dtype, work: workloads.Work
) -> None:
    pytest.importorskip("jax", reason="not run: JAX is not installed")
    held = timed("jax 4", replace(SEQUENCE, dtype=dtype, work=work))
    assert held.compile_seconds["jax 4"] > 0
    contest.weigh(held, list(held.competitors.values()))
    assert "jax 4" not in held.saved_bytes


@pytest.mark.parametrize("cell", formulas.SHIPPED, ids=lambda cell: cell.name)
def test_jax_computes_every_cell(cell: cells.Definition) -> None:
    """Outputs and gradients of the step that a benchmark writes in JAX."""
    pytest.importorskip("jax", reason="not run: JAX is not installed")
    jax = jax_scan.started(1)
    given = bench_cells.Heat(cell, (3, 2, 3, 8), "forward+backward").arguments()
    leaves = (given.input, given.weights, given.bias)
    scan = jax_scan.Scan(jax, 1, tuple(given.scalars), cell.name)
    arrays = [jax.dlpack.from_dlpack(each.detach()) for each in (*leaves, *given.states)]
    expected, last = _reference.sequence(cell, given)
    seeds = [torch.rand_like(each) for each in (expected, *last)]
    wanted = torch.autograd.grad((expected, *last), leaves, seeds)
    outputs, gradients = scan.training_step(tuple(map(jax.dlpack.from_dlpack, seeds)), *arrays)
    actual = [jax_scan.as_tensor(each) for each in (*outputs, *gradients)]
    torch.testing.assert_close(actual, [expected, *last, *wanted])


@pytest.mark.compile
@pytest.mark.parametrize(("name", "work"), [("gru", "forward+backward"), ("slstm", "inference")])
def test_torch_compile_races_a_cell(name: str, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a sequence longer than what it is given at a time; how long it compiled is noted."""
    monkeypatch.setattr(bench_cells, "UNROLLED", {False: 3, True: 2})
    cell = next(cell for cell in formulas.SHIPPED if cell.name == name)
    heat = bench_cells.Heat(cell, (5, 2, 3, 8), work)
    given = heat.arguments()
    entrant = heat.entrant("compile", given)
    assert entrant.compile_seconds > 0
    torch.testing.assert_close(entrant.result()[0], _reference.sequence(cell, given)[0])
    leaves = (given.input, given.weights, given.bias)
    for function in (entrant.call, heat.entrant("eager", given).call):
        for leaf in leaves:
            leaf.grad = None
        function()
        found = [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
    if work != "inference":
        torch.testing.assert_close(found, [leaf.grad for leaf in leaves])


def test_torch_compile_is_not_run_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    heat = bench_cells.Heat(formulas.RNN_TANH, (3, 2, 3, 8), "inference")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "compile" in heat.names
    with pytest.raises(NotHere, match="no-such-compiler"):
        heat.entrant("compile", heat.arguments())


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_an_lstm_with_a_saturated_forget_gate_computes_the_lltm(op: str) -> None:
    for module in ("onnx", "onnxruntime"):
        pytest.importorskip(module, reason=f"not run: {module} is not installed")
    row = replace(SEQUENCE, case=replace(SMALL[op], alpha=0.7), work=workloads.INFERENCE)
    timed("onnxruntime", row)
    assert list(timed("onnxruntime", replace(row, dtype=torch.float64)).seconds) == ["eager"]


@DTYPES
def test_a_stream_computes_the_cell_of_the_row(dtype: torch.dtype) -> None:
    timed("stream", Row(SMALL["cell"], dtype, 1, workloads.INFERENCE))


def test_what_is_not_installed_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("jax", "onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, module, None)
    jax_scan.start.cache_clear()
    row = replace(SEQUENCE, work=workloads.INFERENCE)
    held = contest.hold(row, [EAGER, *competitors.FRAMEWORKS], 0.0, with_floors=False)
    jax_scan.start.cache_clear()
    assert list(held.seconds) == ["eager"]
    assert set(held.not_run) == {"jax 1", "jax 4", "onnxruntime"}
    assert all(reason.endswith("is not installed") for reason in held.not_run.values())


# Selection --------------------------------------------------------------------------------------


def test_the_full_scope_has_every_row_once() -> None:
    names = [row.name for row in workloads.full()]
    assert len(names) == len(set(names)) == 2 * 4 * len(BENCHMARK_CASES) * 4


def test_a_selection_is_by_every_field_named() -> None:
    rows = workloads.select(workloads.full(), "case=16x32x128,work=forward,threads=2")
    assert {row.name for row in rows} == {
        f"cell-16x32x128-{dtype}-2-forward"
        for dtype in ("float32", "float64", "bfloat16", "float16")
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size=3", "KEY one of op, case, dtype, threads, work; got 'size=3'"),
        ("op=conv", "--select op must be one of cell, sequence; got 'conv'"),
        ("cell", "wants KEY=VALUE"),
    ],
)
def test_a_selection_nobody_has_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        workloads.select(workloads.full(), text)
