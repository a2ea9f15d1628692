"""What holds over all records: the tables of docs/benchmarks.md, and the README's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.runs import sweep, tables, targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.runs.figures import Run

RECORD = ("processor", "measured", "caches", "races won", "kernels")
WORST = ("work", "figure", "target", "worst", "on", "in", "good", "verdict")
SHORT = ("figure", "target", "worst", "on", "verdict")
SWEEP = ("processor", "measured", "dtype", "kernels", "rows not behind", "slowest", "in")


def age(run: Run) -> str:
    """Whether a record still says something of the kernels."""
    return "of these kernels" if run.current else "**older than the kernels**"


def table(
    headings: Iterable[str], lines: Iterable[Iterable[str]], names: int = tables.NAMES
) -> Iterator[str]:
    """A table in Markdown, of which the first columns name and the others hold figures."""
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    rules = ["---"] * names + ["---:"] * (len(headings) - names)
    yield f"|{'|'.join(rules)}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def over(runs: Sequence[Run], of_cells: Sequence[Run], sweeps: Sequence[Run]) -> Iterator[str]:
    """Where each record is, and the worst of all, by kind."""
    yield from _records(runs, "benchmarks")
    if of_cells:
        yield from ("", "The cells of `lltm.cells`:", "")
        yield from _records(of_cells, "benchmarks/cells")
    if sweeps:
        yield from (
            "",
            "The sweeps over sizes against eager; behind is by more than the noise:",
            "",
        )
        lines = (line for run in sweeps for line in _of_sweep(run))
        yield from table(SWEEP, lines, names=4)


def _records(runs: Sequence[Run], folder: str) -> Iterator[str]:
    yield from table(RECORD, (_summary(run, folder) for run in runs), names=len(RECORD))
    yield from ("", "The worst of every record:", "")
    yield from table(WORST, _worst(runs), names=3)


def _linked(run: Run, folder: str) -> str:
    of = run.processor
    return f"[{of.title}]({folder}/{of.slug}.md)"


def _summary(run: Run, folder: str) -> tuple[str, ...]:
    of = run.processor
    return (
        f"{_linked(run, folder)}: {of.details}",
        run.made[:10],
        of.cache_sizes or "not recorded",
        tables.won(run),
        age(run),
    )


def _worst(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for title, outcome in targets.worst({_dated(run): run for run in runs}):
        work, unit, bound, figure, where, good, verdict = tables.target_cells(outcome)
        yield work, unit, bound, figure, title, where, good, verdict


def _dated(run: Run) -> str:
    return run.processor.title + ("" if run.current else " (older kernels)")


def _of_sweep(run: Run) -> Iterator[tuple[str, ...]]:
    speeds = sweep.speeds(run)
    for dtype in dict.fromkeys(row.dtype for row, _ in speeds):
        found = [(row, speed) for row, speed in speeds if row.dtype == dtype]
        late = sum(sweep.is_behind(speed) for _, speed in found)
        row, slowest = min(found, key=lambda each: each[1].median)
        yield (
            _linked(run, "benchmarks/sweeps"),
            run.made[:10],
            dtype,
            age(run),
            f"{len(found) - late} of {len(found)}",
            f"{slowest.median:.2f} ±{slowest.spread:.2f}",
            f"{row.op} {row.case} {row.work}",
        )


def short(runs: Sequence[Run]) -> Iterator[str]:
    """The README's table: the targets, the worst figure over the records and whose it is."""
    named = (dict(zip(WORST, line, strict=True)) for line in _worst(runs))
    whole = (each | {"figure": f"{each['work']}: {each['figure']}"} for each in named)
    yield from table(SHORT, ([each[name] for name in SHORT] for each in whole), names=2)
    yield ""
    ages = (f"{run.processor.title}, {run.made[:10]}, {age(run)}" for run in runs)
    yield f"Records: {'; '.join(ages)}."
