"""`--compare`: every regression beyond the noise is named, and nothing else is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from torchproof.files import kernels_hash
from torchproof.machine.sample_processors import AMX, ZEN4

from benchmarks.runs import __main__ as command
from benchmarks.runs import document, measure, picture, scopes
from benchmarks.runs.compare import compare
from benchmarks.runs.figures import LSTM, OTHER, OURS, BenchError, Entry, Figure, Row, Run

if TYPE_CHECKING:
    from torchproof.machine.processor import Processor

HARDWARE = {"processor": ZEN4.to_json(), "in_use": {"lltm": "avx512", "ATen": "AVX512"}}
OTHERS = ("premultiplied", "torchscript", "compile", "aten")


def entry(name: str, kind: str, speed: float, spread: float = 0.01, **memory: int) -> Entry:
    """An entrant so many times faster than an eager of 100 us."""
    us = Figure(100 / speed, spread * 100 / speed)
    figures = {"speed": Figure(speed, spread * speed), "of_blas": None, "of_fma": None}
    bytes_held = {"saved_bytes": 10, "high_water_bytes": 20, **memory}
    return Entry(name=name, kind=kind, us=us, **figures, **bytes_held)


def row(work: str, ours: Entry, others: float = 1.0) -> Row:
    """A row whose other entrants run at `others` times their usual speed."""
    entries = [entry("eager", OTHER, 1.0), entry("lstm", LSTM, 2.0 * others)]
    entries += [entry(name, OTHER, 1.2 * others) for name in OTHERS]
    return Row("cell", "16x32x128", "float32", 1, work, 30, (*entries, ours))


def run(*rows: Row, **hardware: Any) -> Run:
    return Run({**HARDWARE, **hardware}, {"torch": "2.13.0"}, "2026-01-02T03:04:05", rows)


STORED = run(
    row("forward", entry("stable", OURS, 2.0)), row("backward", entry("stable", OURS, 3.0))
)


def test_an_equal_run_has_no_regression() -> None:
    found = compare(STORED, STORED)
    assert (found.regressions, found.missing, found.compared) == ((), (), 2)
    assert found.noise == 0


def test_a_slower_kernel_is_named_with_row_figures_and_noise() -> None:
    now = run(
        row("forward", entry("stable", OURS, 1.6)), row("backward", entry("stable", OURS, 3.0))
    )
    (found,) = compare(now, STORED).regressions
    assert (found.row, found.entry) == ("cell 16x32x128 float32 1 forward", "stable")
    assert "was 2.000x eager and is 1.600x, 20.0% less; noise explains 1.4%" in str(found)


def test_every_regression_is_named() -> None:
    now = run(
        row("forward", entry("stable", OURS, 1.6)), row("backward", entry("stable", OURS, 2.0))
    )
    assert [found.row.split()[-1] for found in compare(now, STORED).regressions] == [
        "forward",
        "backward",
    ]


def test_a_faster_kernel_is_no_regression() -> None:
    now = run(row("forward", entry("stable", OURS, 2.6)))
    assert compare(now, STORED).regressions == ()


@pytest.mark.parametrize(("spread", "named"), [(0.05, 1), (0.15, 0)])
def test_the_spread_of_the_rounds_is_no_regression(spread: float, named: int) -> None:
    now = run(row("forward", entry("stable", OURS, 1.8, spread)))
    assert len(compare(now, STORED).regressions) == named


@pytest.mark.parametrize(("speed", "named"), [(1.8, 0), (1.6, 1)])
def test_what_moves_untouched_code_is_no_regression(speed: float, named: int) -> None:
    """Ours lost 10 % or 20 %; the others, whose code is the same, moved by 12 %."""
    now = run(row("forward", entry("stable", OURS, speed), others=0.89))
    found = compare(now, STORED)
    assert found.noise == pytest.approx(0.117, abs=0.001)
    assert len(found.regressions) == named


def test_a_machine_slower_for_all_is_no_regression() -> None:
    def slowed(entry: Entry) -> Entry:
        return dataclasses.replace(entry, us=Figure(2 * entry.us.median, entry.us.spread))

    rows = (
        dataclasses.replace(row, entries=tuple(map(slowed, row.entries))) for row in STORED.rows
    )
    assert compare(run(*rows), STORED).regressions == ()


@pytest.mark.parametrize("what", ["saved_bytes", "high_water_bytes"])
def test_more_memory_is_a_regression_of_its_own(what: str) -> None:
    now = run(row("forward", entry("stable", OURS, 2.0, **{what: 21})))
    (found,) = compare(now, STORED).regressions
    assert found.what == what
    assert "rose from" in str(found)


def test_other_hardware_is_refused_in_one_sentence() -> None:
    larger = dataclasses.replace(ZEN4, cores=64).to_json()
    with pytest.raises(BenchError, match="other hardware, cores 2 not 64; times compare on one"):
        compare(run(*STORED.rows, processor=larger), STORED)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"processor": AMX.to_json()}, "title 'AMD Zen 4' not 'Intel with AMX'"),
        ({"in_use": {"lltm": "avx2", "ATen": "AVX2"}}, "lltm 'avx512' not 'avx2'"),
    ],
)
def test_another_processor_or_level_is_other_hardware(
    changes: dict[str, Any], difference: str
) -> None:
    with pytest.raises(BenchError, match=difference):
        compare(run(*STORED.rows, **changes), STORED)


def test_what_a_stored_run_does_not_know_is_not_compared() -> None:
    known = {"stepping": None, "caches": {}, "instruction_sets": ("avx512f",)}
    older = dataclasses.replace(ZEN4, **known).to_json()
    stored = run(*STORED.rows, processor=older, in_use={"lltm": "avx512"})
    assert compare(STORED, stored).regressions == ()


def test_runs_without_a_row_in_common_are_refused() -> None:
    with pytest.raises(BenchError, match="no row of ours in common"):
        compare(run(row("inference", entry("stable", OURS, 2.0))), STORED)


def test_rows_only_the_stored_run_has_are_told() -> None:
    now = run(row("forward", entry("stable", OURS, 2.0)))
    assert compare(now, STORED).missing == ("cell 16x32x128 float32 1 backward",)


# The command ------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scopes, "BUILD", tmp_path)
    path = tmp_path / "stored.json"
    path.write_text(STORED.to_text(), encoding="utf-8")
    return path


def bench(monkeypatch: pytest.MonkeyPatch, now: Run, *argv: str, right: bool = True) -> int:
    monkeypatch.setattr(command, "measure_all", lambda chosen, console: (now, right))
    return command.main(list(argv))


def test_a_regression_makes_the_command_fail_and_stands_in_its_words(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = run(row("forward", entry("stable", OURS, 1.2)))
    assert bench(monkeypatch, slower, "--compare", str(stored)) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "regression: cell 16x32x128 float32 1 forward: stable was 2.000x eager" in output
    assert "not run: cell 16x32x128 float32 1 backward" in output
    assert "1.200x" in (scopes.FULL.folder / "index.html").read_text(encoding="utf-8")


def test_without_a_regression_it_succeeds_and_writes_the_run(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench(monkeypatch, STORED, "--compare", str(stored)) == 0
    assert document.read(scopes.FULL.folder / "bench.json") == STORED
    assert (scopes.FULL.folder / "cell-float32-1.svg").is_file()


def test_a_wrong_result_makes_the_command_fail(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench(monkeypatch, STORED, "--compare", str(stored), right=False) == 1


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff"])
def test_a_stored_run_that_is_none_is_refused_before_anything_runs(
    content: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_bytes(content)

    def never(*_: object) -> None:
        raise AssertionError("measured although the comparison cannot be made")

    monkeypatch.setattr(command, "measure_all", never)
    assert command.main(["--compare", str(path)]) == 2
    assert "bad.json" in capsys.readouterr().out.replace("\n", "")


# The records --------------------------------------------------------------------------------------


def test_the_committed_pages_are_those_of_the_records() -> None:
    assert document.check() == ()


def test_every_processor_has_a_record_of_its_own_file() -> None:
    for record in document.records():
        assert document.path(record.processor).is_file()


def test_a_document_without_its_marks_is_refused() -> None:
    with pytest.raises(BenchError, match=r"benchmarks\.md: expected the marks"):
        document.between(document.CPU_MARKS, "", "no marks", document.PATH)


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages with marks and nothing between, and no record."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name, file, marks in (
        ("PATH", tmp_path / "benchmarks.md", (*document.CPU_MARKS, *document.CUDA_MARKS)),
        ("README", tmp_path / "README.md", document.README_MARKS),
    ):
        file.write_text("\n".join(("above", *marks, "below")))
        monkeypatch.setattr(document, name, file)
    monkeypatch.setattr(document, "FOLDER", folder)
    monkeypatch.setattr(document, "CUDA", folder / "cuda.json")
    monkeypatch.setattr(document, "ROOT", tmp_path)
    return folder


def on(processor: Processor, speed: float, kernels: str = "") -> Run:
    forward = row("forward", entry("native", OURS, speed))
    return dataclasses.replace(run(forward, processor=processor.to_json()), kernels=kernels)


def test_a_record_is_kept_for_each_processor_and_the_worst_is_named(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    document.store(on(AMX, 2.5))
    zen4 = (docs / "amd-zen-4.json").read_bytes()
    document.store(on(AMX, 2.2, kernels=kernels_hash()))
    assert (docs / "amd-zen-4.json").read_bytes() == zen4
    assert [record.processor for record in document.records()] == [ZEN4, AMX]
    page, readme = document.PATH.read_text(), document.README.read_text()
    (line,) = (line for line in page.splitlines() if "forward, native | times" in line)
    assert "| at least 2.0 | 2.20 | Intel with AMX |" in line
    assert "forward, native: times as fast as eager | at least 2.0 | 2.20 | Intel" in readme
    (older,) = (line for line in page.splitlines() if "older than the kernels" in line)
    assert "AMD Zen 4" in older
    assert "| 16x32x128 | forward | 100.0 |" in (docs / "intel-with-amx.md").read_text()
    assert all(text.startswith("above") and text.endswith("below") for text in (page, readme))


def test_the_tables_of_a_gpu_are_made_with_the_others_and_name_their_age(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    on_gpu = on(AMX, 2.5)
    on_gpu = dataclasses.replace(on_gpu, hardware={"gpu": "NVIDIA H200", **on_gpu.hardware})
    document.store(on_gpu)
    older = "The record is **older than the kernels**."
    assert older in document.PATH.read_text()
    document.PATH.write_text(document.PATH.read_text().replace(older, ""))
    assert any(line.startswith("benchmarks.md: differs") for line in document.check())
    document.store(dataclasses.replace(on_gpu, kernels=kernels_hash()))
    assert "The record is of these kernels." in document.PATH.read_text()


def test_the_records_of_the_cells_are_beside_those_of_the_lltm(docs: Path) -> None:
    def of_cells(processor: Processor, speed: float) -> Run:
        found = row("inference", entry("lltm.cells", OURS, speed))
        return run(dataclasses.replace(found, op="lstm"), processor=processor.to_json())

    document.store(on(ZEN4, 3.0))
    document.store(of_cells(ZEN4, 2.5))
    document.store(of_cells(AMX, 1.5))
    assert document.records() == (on(ZEN4, 3.0),)
    shown = document.PATH.read_text()
    assert "[Intel with AMX](benchmarks/cells/intel-with-amx.md): Intel" in shown
    assert "| every row | times as fast as eager | at least 2.0 | 1.50 | Intel with AMX" in shown
    assert (docs / "cells" / "intel-with-amx.md").is_file()


def test_a_sweep_is_kept_beside_the_records_and_shown_with_its_slowest(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    swept = run(
        row("forward", entry("native", OURS, 2.0)),
        row("inference", entry("native", OURS, 0.5)),
        processor=AMX.to_json(),
    )
    swept = dataclasses.replace(swept, kernels=kernels_hash())
    document.store_sweep(swept)
    assert document.records() == (on(ZEN4, 3.0),)
    kept = docs / "sweeps" / "intel-with-amx.json"
    assert document.read(kept) == swept
    (line,) = (line for line in document.PATH.read_text().splitlines() if "/sweeps/" in line)
    assert "of these kernels | 1 of 2 | 0.50 ±" in line
    assert line.endswith("| cell 16x32x128 inference |")
    page = kept.with_suffix(".md").read_text()
    assert "- behind: cell 16x32x128 float32 1 inference: 0.50" in page
    assert "| 16 | **0.50** |" in page
    assert "| 16 | 2.00 |" in page
    kept.with_suffix(".md").write_text("")
    assert [line.partition(":")[0] for line in document.check()] == [
        "benchmarks/sweeps/intel-with-amx.md"
    ]


def test_the_dtypes_that_a_run_left_out_are_kept_of_the_same_kernels(docs: Path) -> None:
    def of(dtype: str, speed: float, kernels: str) -> Run:
        made = on(ZEN4, speed, kernels)
        return dataclasses.replace(
            made, rows=tuple(dataclasses.replace(row, dtype=dtype) for row in made.rows)
        )

    for made in (of("float32", 3.0, "new"), of("float16", 9.0, "new"), of("float16", 8.0, "new")):
        document.store(made)
    (record,) = document.records()
    rows = of("float32", 3.0, "new").rows + of("float16", 8.0, "new").rows
    assert record.rows == rows
    other = of("float64", 3.5, "new")
    for changed in (
        of("float64", 3.5, "newer"),
        dataclasses.replace(other, software={"torch": "2.14.0"}),
        dataclasses.replace(other, hardware={**HARDWARE, "in_use": {}}),
    ):
        document.store(of("float32", 3.0, "new"))
        document.store(changed)
        assert document.records() == (changed,)


def test_a_damaged_record_is_replaced(docs: Path) -> None:
    (docs / "amd-zen-4.json").write_text("<<<<<<< ours")
    document.store(on(ZEN4, 3.0))
    assert document.records() == (on(ZEN4, 3.0),)


def test_a_record_not_made_into_pages_is_found(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    assert document.check() == ()
    (docs / "amd-zen-4.json").write_text(on(ZEN4, 1.5).to_text())
    assert [line.partition(":")[0] for line in document.check()] == [
        "benchmarks/amd-zen-4.md",
        "benchmarks.md",
        "README.md",
    ]


SVG = "{http://www.w3.org/2000/svg}"


def plot(*speeds: tuple[Processor, float]) -> ElementTree.Element:
    """Of a sequence on each processor, with our speed there."""
    runs = []
    for processor, ours in speeds:
        found = row("forward+backward", entry("stable", OURS, ours))
        found = dataclasses.replace(found, op="sequence", case="64x16x32x128")
        runs.append(run(found, processor=processor.to_json()))
    return ElementTree.fromstring(picture.svg(runs))


def texts_of(drawn: ElementTree.Element, tag: str = "text") -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}{tag}")]


def circles_of(drawn: ElementTree.Element) -> list[float]:
    """Where ours stands in each line, from the left."""
    _legend, *lines = (float(circle.get("cx", "")) for circle in drawn.iter(f"{SVG}circle"))
    return lines


def test_the_plot_of_the_records_shows_each_processor_and_orders_the_speeds() -> None:
    drawn = plot((ZEN4, 3.0), (AMX, 2.0))
    texts = texts_of(drawn)
    assert [text for text in texts if "older kernels" in text] == [
        "AMD Zen 4 (older kernels), forward+backward",
        "Intel with AMX (older kernels), forward+backward",
    ]
    assert [t for t in texts_of(drawn, "title") if t.startswith("fastest")] == [
        "fastest other in torch, 64x16x32x128: 1.20"
    ] * 2
    zen4, amx = circles_of(drawn)
    assert zen4 > amx


@pytest.mark.parametrize(
    ("speeds", "beyond"), [((10.5, 14.0), "20"), ((0.3, 0.4), "0.3"), ((2000.0, 3000.0), "3000")]
)
def test_the_axis_of_the_plot_reaches_every_speed(speeds: tuple[float, float], beyond: str) -> None:
    drawn = plot((ZEN4, speeds[0]), (AMX, speeds[1]))
    zen4, amx = circles_of(drawn)
    assert 0 < zen4 < amx < picture.WIDTH
    assert beyond in texts_of(drawn)
    assert {"0.5", "1", "10"} <= set(texts_of(drawn))


def test_compare_without_a_file_takes_the_record_of_this_processor(
    docs: Path,
    stored: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command.processor, "read", lambda: ZEN4)
    document.store(on(AMX, 9.0))
    assert bench(monkeypatch, on(ZEN4, 1.5), "--compare") == 2
    output = " ".join(capsys.readouterr().out.split())
    assert "there is no record of this processor, AMD Zen 4, in docs/benchmarks" in output
    document.store(on(ZEN4, 3.0))
    assert bench(monkeypatch, on(ZEN4, 1.5), "--compare") == 1
    assert bench(monkeypatch, on(ZEN4, 3.0), "--compare") == 0


def test_a_run_is_stored_by_the_command(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes, "BUILD", docs.parent)
    assert bench(monkeypatch, on(ZEN4, 3.0), "--full", "--write") == 0
    assert document.records() == (on(ZEN4, 3.0),)


@pytest.mark.parametrize(
    "scope",
    [
        [],
        ["--quick"],
        ["--full", "--select", "op=cell"],
        ["--full", "--without-compilers"],
    ],
    ids=" ".join,
)
def test_a_part_of_a_run_is_no_record(scope: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*scope, "--write"])
    assert ended.value.code == 2
    assert "--write keeps whole runs" in capsys.readouterr().err


def test_a_run_of_the_cells_has_a_place_of_its_own(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    compiled = dataclasses.replace(entry("compile", OTHER, 1.2), compile_seconds=31.4)
    entries = (entry("eager", OTHER, 1.0), compiled, entry("lltm.cells", OURS, 2.5))
    gru = Row("gru", "16x32x128", "float32", 1, "forward+backward", 30, entries)
    document.store(run(gru, processor=ZEN4.to_json()))
    assert document.records() == (on(ZEN4, 3.0),)
    page = (docs / "cells" / "amd-zen-4.md").read_text()
    assert page.startswith("# Cells on AMD Zen 4")
    assert "| every row | times as fast as eager | at least 2.0 | 2.50 |" in page
    assert "| eager µs | nn.GRU | compile | jax 1 | jax 4 | lltm.cells |" in page
    assert "| 100.0 | not run | 1.20 (31.4 s) | not run | not run | **2.50 ±0.03** |" in page
    assert document.check() == ()


def test_a_run_on_a_gpu_has_a_place_of_its_own(docs: Path) -> None:
    document.store(on(ZEN4, 3.0))
    document.store(run(row("forward", entry("stable", OURS, 2.0)), gpu="NVIDIA H200"))
    assert [record.processor for record in document.records()] == [ZEN4]
    cpu, _, cuda = document.PATH.read_text().partition(document.CUDA_MARKS[0])
    assert "NVIDIA H200" not in cpu
    assert "NVIDIA H200" in cuda
    assert "achieved" in cuda


# Without a GPU ------------------------------------------------------------------------------------


def test_without_a_gpu_it_is_not_run_and_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "gpu_unavailable_reason", lambda: "no CUDA device")
    assert command.main(["--cuda"]) == command.NOT_RUN
    assert capsys.readouterr().out == "bench-cuda: not run: no CUDA device\n"
