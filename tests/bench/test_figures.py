"""A run's figures: ratios of times of one round, and what is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torchproof.machine.sample_processors import ZEN4

from benchmarks.runs import figures, page, plots, tables
from benchmarks.runs.figures import BenchError, Figure


def entrant(name: str, kind: str, data: list[float], contest: str = "one") -> dict[str, Any]:
    row = {"op": "cell", "case": "16x32x128", "dtype": "float32", "threads": "1", "work": "forward"}
    memory = {"saved_bytes": 100 if name == "eager" else 40, "high_water_bytes": 200}
    info = {**row, "competitor": name, "kind": kind, "contest": contest}
    return {"extra_info": info if kind == "floor" else {**info, **memory}, "stats": {"data": data}}


def document(*entrants: dict[str, Any]) -> dict[str, Any]:
    return {
        "datetime": "2026-01-02T03:04:05",
        "machine_info": {
            "machine": "x86_64",
            "python_version": "3.11.7",
            "torch": "2.13.0",
            "processor": ZEN4.to_json(),
            "instruction_sets_in_use": {"lltm": "avx512", "ATen": "AVX512", "MKL": None},
            "lltm": {
                "version": "0.1.0",
                "binding": "stable",
                "compiler": "g++ 12.2.0",
            },
        },
        "benchmarks": list(entrants),
    }


RACE = document(
    entrant("eager", "other", [4.0, 8.0, 4.0]),
    entrant("torchscript", "other", [4.0, 8.0, 4.0]),
    entrant("lstm", "lstm", [4.0, 8.0, 4.0]),
    entrant("stable", "ours", [2.0, 4.0, 2.0]),
    entrant("blas floor", "floor", [1.0, 2.0, 1.0]),
    entrant("fma floor", "floor", [0.5, 1.0, 0.5]),
)


def test_a_figure_is_the_median_of_ratios_within_rounds() -> None:
    # Of the medians the ratio is 2: the slow rounds of the two are different ones.
    slow_elsewhere = document(
        entrant("eager", "other", [4.0, 4.0, 12.0]), entrant("stable", "ours", [2.0, 6.0, 2.0])
    )
    (row,) = figures.from_pytest_benchmark([slow_elsewhere]).rows
    stable = row.entry("stable")
    assert stable is not None
    assert stable.speed.median == pytest.approx(2.0)
    assert stable.speed.spread > 0
    (steady,) = figures.from_pytest_benchmark([RACE]).rows
    ours = steady.entry("stable")
    assert ours is not None
    assert ours.speed == Figure(2.0, 0.0)


def test_the_floors_and_the_scaled_lstm_stand_beside() -> None:
    (row,) = figures.from_pytest_benchmark([RACE]).rows
    stable, scaled = row.entry("stable"), row.entry("lstm x 3/4")
    assert stable is not None
    assert scaled is not None
    assert stable.of_blas == Figure(2.0, 0.0)
    assert stable.of_fma == Figure(4.0, 0.0)
    assert scaled.speed == Figure(1.3333, 0.0)
    assert scaled.of_blas is None
    assert row.best_other.name in ("eager", "torchscript")


def test_a_figure_has_five_digits() -> None:
    assert Figure.of([2 / 3]) == Figure(0.66667, 0.0)
    assert Figure.of([123456.7, 123456.7, 123458.9, 123458.9]) == Figure(123460.0, 1.1)


def test_times_of_two_contests_are_never_mixed() -> None:
    broken_off = entrant("torchscript", "other", [1.0], contest="another")
    eager = entrant("eager", "other", [4.0, 4.0])
    run = figures.from_pytest_benchmark([document(eager, broken_off)])
    assert [[entry.name for entry in row.entries] for row in run.rows] == [["eager"]]


def test_parts_measured_apart_are_one_run() -> None:
    other = json.loads(json.dumps(RACE))
    for benchmark in other["benchmarks"]:
        benchmark["extra_info"]["threads"] = "2"
    run = figures.from_pytest_benchmark([RACE, other])
    assert [row.threads for row in run.rows] == [1, 2]


def test_json_reads_back_as_it_was() -> None:
    run = figures.from_pytest_benchmark([RACE])
    assert figures.from_text(run.to_text(), "a file") == run


@pytest.mark.parametrize("value", [[], {}, {"rows": [{"op": "cell"}]}, {"rows": [], "x": 1}])
def test_what_is_no_run_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BenchError, match=r"^stored\.json is not a run of `nox -s bench`"):
        figures.from_text(json.dumps(value), "stored.json")


def test_a_machine_is_not_named_by_its_host() -> None:
    made = document(entrant("eager", "other", [1.0]))
    made["machine_info"]["node"] = "secret-host"
    assert "secret-host" not in figures.from_pytest_benchmark([made]).to_text()


def test_the_table_marks_who_is_behind() -> None:
    behind = document(
        entrant("eager", "other", [4.0] * 3),
        entrant("compile", "other", [1.0] * 3),
        entrant("stable", "ours", [2.0] * 3),
    )
    run = figures.from_pytest_benchmark([behind])
    (section,) = tables.sections(run)
    (line,) = section.lines
    by_heading = dict(zip(section.headings, line, strict=True))
    assert (by_heading["stable"].text, by_heading["stable"].mark) == ("2.00 ±0.00", "behind")
    assert by_heading["saved"].text == "40%"
    assert by_heading["of BLAS"].text == tables.DASH
    assert "0 of 1" in str(tables.verdicts(run)[0])
    (ahead,) = tables.sections(figures.from_pytest_benchmark([RACE]))
    assert "ahead" in [cell.mark for cell in ahead.lines[0]]


def test_the_page_holds_tables_plots_and_the_way_to_the_matrix() -> None:
    run = figures.from_pytest_benchmark([RACE])
    html = page.render(run, None, matrix="../matrix/index.html")
    assert 'href="../matrix/index.html"' in html
    assert "2.00 ±0.00" in html
    assert html.count("data:image/svg+xml") == 2  # one plot, wide and narrow
    assert f"Made on 2 January 2026, 03:04 UTC, on {ZEN4.title} (" in html
    assert "Build matrix" not in page.render(run, None, matrix=None)


def test_a_plot_is_svg_that_says_what_it_shows() -> None:
    ((name, plot),) = plots.speed(figures.from_pytest_benchmark([RACE]))
    assert name == "cell-float32-1"
    assert plot.svg.lstrip().startswith("<?xml")
    assert "ours from 2.00 to 2.00" in plot.words


def test_the_seconds_that_a_compiler_takes_stand_beside_its_speed() -> None:
    jax = entrant("jax 4", "other", [2.0] * 3)
    jax["extra_info"]["compile_seconds"] = 1.26
    stream = entrant("stream", "stream", [1.0] * 3)
    run = figures.from_pytest_benchmark(
        [document(entrant("eager", "other", [4.0] * 3), jax, stream)]
    )
    (section,) = tables.sections(run)
    shown = dict(zip(section.headings, section.lines[0], strict=True))
    assert shown["jax 4"].text == "2.00 (1.3 s)"
    assert shown["stream"] == tables.Cell("4.00 ±0.00", "ahead")


# On a GPU -----------------------------------------------------------------------------------------


def on_gpu() -> figures.Run:
    graphed = entrant("graphed", "ours", [1e-6] * 3)
    del graphed["extra_info"]["saved_bytes"], graphed["extra_info"]["high_water_bytes"]
    made = document(
        entrant("eager", "other", [4e-6] * 3),
        entrant("tutorial cuda", "other", [3e-6] * 3),
        entrant("lstm", "lstm", [4e-6] * 3),
        entrant("flashrnn", "lstm", [2e-6] * 3),
        entrant("stable", "ours", [2e-6] * 3),
        graphed,
        entrant("blas floor", "floor", [1e-6] * 3),
        entrant("flop floor", "floor", [2e-7] * 3),
        entrant("byte floor", "floor", [5e-7] * 3),
    )
    made["machine_info"]["gpu"] = {
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "driver": "580.82.07",
        "cuda": "13.0",
    }
    return figures.from_pytest_benchmark([made])


def test_a_run_on_a_gpu_names_gpu_driver_cuda_and_torch() -> None:
    run = on_gpu()
    assert run.hardware["gpu"] == "NVIDIA H200"
    assert {"driver": "580.82.07", "cuda": "13.0", "torch": "2.13.0"}.items() <= (
        run.software.items()
    )


def test_every_lstm_is_scaled_by_itself() -> None:
    (row,) = on_gpu().rows
    scaled = {name: row.entry(f"{name} x 3/4") for name in ("lstm", "flashrnn")}
    assert {name: entry and entry.us.median for name, entry in scaled.items()} == {
        "lstm": pytest.approx(3.0),
        "flashrnn": pytest.approx(1.5),
    }


def test_the_floors_of_a_gpu_stand_beside_with_the_fraction_achieved() -> None:
    (section,) = tables.sections(on_gpu())
    assert section.title == "cell, float32"
    (line,) = section.lines
    shown = {heading: cell.text for heading, cell in zip(section.headings, line, strict=True)}
    assert (shown["bytes µs"], shown["FLOPs µs"], shown["achieved"]) == ("0.5", "0.2", "50%")
    assert "of FMA" not in shown
    assert "the longer of the two" in page.render(on_gpu(), None, matrix=None)


def test_memory_is_that_of_the_fastest_of_ours_that_was_weighed() -> None:
    """A CUDA graph, which is faster, took its memory when it was captured."""
    (section,) = tables.sections(on_gpu())
    shown = dict(zip(section.headings, section.lines[0], strict=True))
    assert (shown["saved"].text, shown["peak"].text) == ("40%", "100%")
