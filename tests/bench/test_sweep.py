"""The sweep: which shapes it has, what counts as behind, and how it is shown."""

from __future__ import annotations

import pytest
from test_figures import document, entrant

from benchmarks import workloads
from benchmarks.runs import __main__, figures, measure, page, sweep
from benchmarks.runs.figures import Run
from benchmarks.runs.scopes import SWEEP


def run(ours: dict[str, list[float]]) -> Run:
    """Of a cell: per case the seconds of ours, eager's being 1 in each of three rounds."""
    entrants = []
    for case, seconds in ours.items():
        for one in (
            entrant("eager", "other", [1.0, 1.0, 1.0], case),
            entrant("stable", "ours", seconds, case),
        ):
            one["extra_info"]["case"] = case
            entrants.append(one)
    return figures.from_pytest_benchmark([document(*entrants)])


RUN = run({"1x16x16": [0.5, 0.5, 0.5], "1x17x33": [1.2, 1.2, 1.2], "64x16x16": [0.9, 1.05, 1.3]})


def test_it_has_the_sizes_between_the_tables_and_odd_ones() -> None:
    cases = {row.case for row in workloads.sweep()}
    assert {case.op for case in cases} == {"cell", "sequence"}
    for sizes, low, high in (
        ({case.batch for case in cases}, 1, 256),
        ({case.features for case in cases}, 16, 1024),
        ({case.state for case in cases}, 16, 1024),
    ):
        assert (min(sizes), max(sizes)) == (low, high)
        assert any(size % 2 for size in sizes)
    assert [part.name for part in measure.parts(SWEEP, None)] == [
        "cell-float32-1",
        "sequence-float32-1",
        "cell-bfloat16-1",
        "sequence-bfloat16-1",
    ]


def test_behind_is_slower_than_eager_by_more_than_the_noise() -> None:
    assert [row.case for row, _ in sweep.behind(RUN)] == ["1x17x33"]
    head, *late = sweep.verdicts(RUN)
    assert head.startswith("2 of 3 rows are not behind eager")
    assert "cell 1x17x33 float32 1 forward, 0.83 times" in head
    assert late == ["behind: cell 1x17x33 float32 1 forward: 0.83 ±0.00"]


def test_a_map_leaves_out_what_was_not_measured() -> None:
    (found,) = sweep.maps(RUN)
    assert found.sizes == ("16 x 16", "17 x 33")
    texts = {batch: [(cell.text, cell.mark) for cell in line] for batch, line in sweep.lines(found)}
    assert texts == {1: [("2.00", ""), ("0.83", "behind")], 64: [("0.95", ""), ("—", "")]}


def test_the_page_says_what_is_behind_and_draws_each_map() -> None:
    shown = page.render_sweep(RUN)
    assert "behind: cell 1x17x33" in shown
    assert "1 of 3 behind by more than the noise" in shown
    assert shown.count('class="wide"') == 1
    assert '<td class="n behind">0.83</td>' in shown


def test_where_ours_did_not_run_nothing_is_claimed() -> None:
    alone = figures.from_pytest_benchmark([document(entrant("eager", "other", [1.0, 1.0]))])
    assert sweep.verdicts(alone) == ["none of ours took part"]
    assert not sweep.maps(alone)


def test_it_is_not_compared_with_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.arguments(["--sweep", "--compare"])
    assert "a sweep compares ours with eager, not with a stored run" in capsys.readouterr().err


def test_its_rows_are_short_unless_told_otherwise() -> None:
    assert __main__.arguments(["--sweep"]).seconds < __main__.arguments([]).seconds
    assert __main__.arguments(["--sweep", "--seconds", "2"]).seconds == 2
