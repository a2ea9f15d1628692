"""What is to be reached: the worst value counts, and what was not measured is not reached."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import bench_cells
from benchmarks.runs import targets
from benchmarks.runs.figures import CELLS, LSTM, OTHER, OURS, STREAM, Entry, Figure, Row, Run


def entry(name: str, kind: str, speed: float, of_blas: float | None = None) -> Entry:
    floor = Figure(of_blas, 0.0) if of_blas else None
    return Entry(name, kind, Figure(1.0, 0.0), Figure(speed, 0.0), floor, None, 1, 1)


def sequence(case: str, *entries: Entry) -> Row:
    eager = entry("eager", OTHER, 1.0)
    return Row("sequence", case, "float32", 1, "forward+backward", 9, (eager, *entries))


def outcomes(*rows: Row) -> dict[str, targets.Outcome]:
    run = Run({}, {}, "2026-01-02", rows)
    return {f"{o.target.work}: {o.target.unit}": o for o in targets.outcomes(run)}


SPEED = "sequence 64x16x32x128 forward+backward: times as fast as eager"
BLAS = "every sequence forward+backward: time of the BLAS floor's"
FMA = "every sequence forward+backward where B > 1: time of the FMA floor's"
LSTM_ITSELF = "every sequence forward+backward, float32: times as fast as nn.LSTM as it is"
BEST = (
    "every row, four dtypes: times as fast as the best of eager, premultiplied, TorchScript, "
    "compile and JAX"
)
LOOPS = tuple(entry(name, OTHER, 0.9) for name in targets.SEQUENCE_LOOPS)


@pytest.mark.parametrize(("speed", "reached"), [(3.5, True), (3.49, False)])
def test_a_bound_from_below(speed: float, reached: bool) -> None:
    row = sequence("64x16x32x128", entry("stable", OURS, speed))
    found = outcomes(row, dataclasses.replace(row, threads=2))[SPEED]
    assert found.reached is reached
    assert found.worst == speed


def test_the_worst_of_all_rows_and_bindings_counts() -> None:
    found = outcomes(
        sequence("a", entry("stable", OURS, 2.0, of_blas=0.9)),
        sequence("b", entry("stable", OURS, 2.0, of_blas=1.2), entry("native", OURS, 2, 0.8)),
    )[BLAS]
    assert (found.worst, found.good, found.all, found.reached) == (1.2, 2, 3, False)
    assert found.where == "sequence b float32 1 forward+backward, stable"


def test_the_cells_have_as_many_rows_as_their_targets_count() -> None:
    rows = [heat.fields() for heat in bench_cells.heats()]
    assert {row["op"] for row in rows} == set(CELLS)
    assert len(rows) == targets.CELLS_ROWS
    assert sum(row["op"] == "lstm" for row in rows) == targets.ROWS_OF_A_CELL


def of_lstm(*entries: Entry) -> dict[str, targets.Outcome]:
    eager = entry("eager", OTHER, 1.0)
    return outcomes(Row("lstm", "64x16x32x128", "float32", 1, "inference", 9, (eager, *entries)))


def test_cells_have_targets_of_their_own() -> None:
    jax = [entry(f"jax {unroll}", OTHER, 1.5) for unroll in (1, 4)]
    ours, theirs = entry("lltm.cells", OURS, 1.9), entry("nn.LSTM", OTHER, 1.8)
    found = of_lstm(ours, theirs, *jax)
    assert {words: outcome.reached for words, outcome in found.items()} == {
        "every row: times as fast as eager": False,
        "every row: times as fast as the best of eager, JAX, torch's module, compile if run": None,
        "lstm: times as fast as nn.LSTM": None,
    }
    assert of_lstm(ours, *jax)["lstm: times as fast as nn.LSTM"].worst is None


@pytest.mark.parametrize(("ours", "good"), [(2.0, 0), (2.1, 1)])
def test_equal_is_not_ahead(ours: float, good: int) -> None:
    row = sequence("a", entry("lstm", LSTM, 2.0), entry("stable", OURS, ours))
    found = outcomes(row)[LSTM_ITSELF]
    assert found.worst == pytest.approx(ours / 2)
    assert (found.good, found.all) == (good, 1)
    assert found.target.bound == "above 1.0"


def test_a_batch_of_one_is_not_measured_by_the_rate_of_multiply_adds() -> None:
    ours = dataclasses.replace(entry("stable", OURS, 2.0), of_fma=Figure(9.0, 0.0))
    assert outcomes(sequence("64x1x256x512", ours))[FMA].worst is None
    assert outcomes(sequence("64x16x256x512", ours))[FMA].worst == 9.0


@pytest.mark.parametrize(("count", "reached"), [(10, True), (9, None)])
def test_what_was_not_run_is_never_reached(count: int, reached: bool | None) -> None:
    rows = [sequence(f"case {n}", entry("stable", OURS, 2.0, of_blas=0.9)) for n in range(count)]
    assert outcomes(*rows)[BLAS].reached is reached


@pytest.mark.parametrize(("compiled", "worst"), [(0.5, 2.0), (4.0, 0.5)])
def test_the_best_is_eager_where_the_compiler_is_slower(compiled: float, worst: float) -> None:
    row = sequence("a", *LOOPS, entry("compile", OTHER, compiled), entry("stable", OURS, 2.0))
    assert outcomes(row)[BEST].worst == worst


@pytest.mark.parametrize("missing", ["compile", *targets.SEQUENCE_LOOPS])
def test_without_one_who_races_nothing_is_proven_against_the_best(missing: str) -> None:
    others = [each for each in (*LOOPS, entry("compile", OTHER, 0.5)) if each.name != missing]
    assert outcomes(sequence("a", *others, entry("stable", OURS, 2.0)))[BEST].worst is None


def test_torch_compile_is_asked_of_sequences_in_float32_alone() -> None:
    row = sequence("a", *LOOPS, entry("stable", OURS, 2.0))
    assert outcomes(row)[BEST].worst is None
    assert outcomes(dataclasses.replace(row, dtype="float64"))[BEST].worst == 2.0


def test_a_stream_is_held_against_the_cell() -> None:
    entries = entry("stable", OURS, 2.0), entry("stream", STREAM, 3.0)
    row = dataclasses.replace(sequence("16x32x128", *entries), op="cell", work="inference")
    found = outcomes(row)["LLTMStream at one step, float32: times as fast as the cell"]
    assert (found.worst, found.all) == (1.5, 1)


def test_other_dtypes_are_not_meant() -> None:
    row = sequence("64x16x32x128", entry("stable", OURS, 9.0))
    assert outcomes(dataclasses.replace(row, dtype="float64"))[SPEED].reached is None


def test_a_target_of_one_binding_asks_that_binding_only() -> None:
    row = dataclasses.replace(
        sequence("16x32x128", entry("stable", OURS, 1.5), entry("native", OURS, 2.5)),
        op="cell",
        work="forward",
    )
    found = outcomes(row, dataclasses.replace(row, threads=2))
    assert found["cell 16x32x128 forward, native: times as fast as eager"].worst == 2.5
    assert found["cell 16x32x128 forward, stable: times as fast as eager"].reached


@pytest.mark.parametrize(
    ("first", "second", "worst"),
    [(3.6, 3.4, "b"), (3.6, 4.0, "a"), (3.4, 3.3, "b"), (9.0, None, "b"), (3.4, None, "a")],
)
def test_the_worst_record_is_named_and_one_that_has_not_measured_is_worse_than_reached(
    first: float, second: float | None, worst: str
) -> None:
    runs = {
        name: Run({}, {}, "", (sequence("64x16x32x128", entry("stable", OURS, speed)),))
        if speed
        else Run({}, {}, "", ())
        for name, speed in (("a", first), ("b", second))
    }
    found = {f"{o.target.work}: {o.target.unit}": name for name, o in targets.worst(runs)}
    assert found[SPEED] == worst


# On a GPU -----------------------------------------------------------------------------------------


def on_gpu(*rows: Row) -> dict[str, targets.Outcome]:
    run = Run({"gpu": "NVIDIA H200"}, {}, "2026-01-02", rows)
    return {f"{o.target.work}: {o.target.unit}": o for o in targets.outcomes(run)}


def cell(dtype: str, work: str, *entries: Entry) -> Row:
    return Row("cell", "16x32x128", dtype, 1, work, 9, (entry("eager", OTHER, 1.0), *entries))


def test_the_cell_is_held_against_eager_in_every_precision() -> None:
    rows = [
        cell(dtype, "forward", entry("stable", OURS, speed), entry("graphed", OURS, 0.1))
        for dtype, speed in (("float32", 2.5), ("tf32", 2.0), ("bfloat16", 1.9))
    ]
    found = on_gpu(*rows)["cell 16x32x128 forward: times as fast as eager"]
    assert (found.worst, found.good, found.all, found.reached) == (1.9, 2, 3, False)


def test_the_cell_is_never_behind_the_tutorial() -> None:
    key = "cell 16x32x128, float32 and tf32: times as fast as the tutorial's CUDA design"
    rows = [
        cell(dtype, work, entry("tutorial cuda", OTHER, 3.0), entry("stable", OURS, 3.0))
        for dtype in ("float32", "tf32")
        for work in ("forward", "backward", "forward+backward", "inference")
    ]
    assert on_gpu(*rows)[key].reached
    assert on_gpu(*rows[:-1])[key].reached is None
    behind = cell("tf32", "inference", entry("tutorial cuda", OTHER, 3), entry("native", OURS, 2))
    assert on_gpu(*rows[:-1], behind)[key].reached is False


def test_against_the_better_mode_of_the_compiler_and_both_must_have_run() -> None:
    key = "sequence 64x16x32x128: times as fast as torch.compile"
    ours, default = entry("stable", OURS, 6.0), entry("compile", OTHER, 1.0)
    best = entry("max-autotune", OTHER, 2.0)
    assert on_gpu(sequence("64x16x32x128", default, best, ours))[key].worst == 3.0
    assert on_gpu(sequence("64x16x32x128", default, ours))[key].worst is None


def test_the_targets_of_the_cpu_are_not_those_of_a_gpu() -> None:
    row = sequence("64x16x32x128", entry("stable", OURS, 9.0))
    assert SPEED in outcomes(row)
    assert SPEED not in on_gpu(row)
