"""The run as tables for the terminal, and the same cells for the page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.runs import targets
from benchmarks.runs.figures import (
    BYTE,
    CELLS,
    COMPILE,
    EAGER,
    FLOP,
    JAX,
    LSTM,
    MODULES,
    OTHER,
    OURS,
    STREAM,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType

    from benchmarks.runs.compare import Comparison
    from benchmarks.runs.figures import Entry, Figure, Row, Run

DASH = "—"
NOT_RUN = "not run"
# The first columns name a row, the others hold figures.
NAMES = 2
ROUNDS = (
    "Each figure is a median over rounds in which everyone was timed once; ± is half the distance "
    "between the quartiles. eager µs: time of a call; all others: times as fast as eager; "
)
SPEEDS = (
    f"{ROUNDS}lstm: nn.LSTMCell or nn.LSTM, and at three quarters of its time, for its fourth "
    "gate. "
)
FRAMEWORKS = (
    "jax: lax.scan under jit, unrolled by 1 or 4, the seconds in brackets until its first result; "
    "onnxruntime: its LSTM kernel with a saturated forget gate; stream: lltm.LLTMStream. "
)
MEMORY = (
    "saved: bytes kept for backward as a part of eager's; peak: the most held at one time, "
    "likewise."
)
LEGEND = (
    f"{SPEEDS}{FRAMEWORKS}Of the faster of ours: its time in times of the bare BLAS products, and "
    f"of the products at the measured peak rate of multiply-adds; {MEMORY}"
)
CUDA_LEGEND = (
    f"{SPEEDS}bytes µs: the time to read every argument and write every result once at the rate of "
    "a large copy; FLOPs µs: that of the products at the rate of a large one; achieved: the longer "
    f"of the two as a part of the time of the faster of ours; {MEMORY}"
)
CELLS_LEGEND = (
    f"{ROUNDS}lltm.cells: kernels compiled from the cell's step; lltm.LLTMSequence: those of the "
    "wheel; nn.LSTM, nn.GRU, nn.RNN: torch's own module; compile: torch.compile, 64 steps unrolled "
    "at a time, of forward+backward 16; jax: lax.scan under jit, unrolled by 1 or 4; in "
    "brackets: seconds that it compiled."
)


def legend(run: Run) -> str:
    """What the headings mean."""
    if run.of_cells:
        return CELLS_LEGEND
    return CUDA_LEGEND if run.on_gpu else LEGEND


@dataclass(frozen=True)
class Cell:
    """A cell's text, and the mark it bears: ahead, behind or none."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Section:
    """The rows of one op, dtype and thread count."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]


def sections(run: Run) -> Iterator[Section]:
    """The run's rows, by op, dtype and thread count."""

    def key(row: Row) -> tuple[str, str, int]:
        return row.op, row.dtype, row.threads

    columns = {} if run.of_cells else CUDA_COLUMNS if run.on_gpu else COLUMNS
    for (op, dtype, threads), found in groupby(sorted(run.rows, key=key), key):
        rows = list(found)
        others = _racing(op) if run.of_cells else _names(rows, OTHER, LSTM)
        ours = _names(rows, OURS, STREAM)
        sizes = "B x F x S" if op == "cell" else "T x B x F x S"
        of = "" if run.on_gpu else f", {threads} thread{'s' if threads > 1 else ''}"
        yield Section(
            f"{op}, {dtype}{of}",
            (sizes, "work", "eager µs", *others, *ours, *columns),
            tuple(tuple(_cells(row, others, ours, columns.values())) for row in rows),
        )


def _racing(cell: str) -> list[str]:
    """Who is to race a cell: a column stays where nobody ran."""
    return [*([MODULES[cell]] if cell in MODULES else []), COMPILE, *JAX]


def _names(rows: Iterable[Row], *kinds: str) -> list[str]:
    """Who took part anywhere, in order, but for eager, which is 1."""
    names = dict.fromkeys(entry.name for row in rows for entry in row.of_kind(*kinds))
    return [name for name in names if name != EAGER]


def _cells(
    row: Row,
    others: Iterable[str],
    ours: Iterable[str],
    columns: Iterable[Callable[[Row, Entry], str]],
) -> Iterator[Cell]:
    eager = row.entry(EAGER)
    best = _fastest(row.of_kind(OURS))
    assert eager is not None
    yield Cell(row.case)
    yield Cell(row.work)
    yield Cell(f"{eager.us.median:,.1f}")
    for name in others:
        entry = row.entry(name)
        yield Cell(_other(entry) if entry else NOT_RUN if row.op in CELLS else DASH)
    for name in ours:
        entry = row.entry(name)
        yield Cell(DASH) if entry is None else Cell(_speed(entry.speed), _mark(row, entry))
    for column in columns:
        yield Cell(column(row, best) if best else DASH)


def _fastest(entries: Iterable[Entry]) -> Entry | None:
    return max(entries, key=lambda entry: entry.speed.median, default=None)


def _other(entry: Entry) -> str:
    compiling = entry.compile_seconds
    return f"{entry.speed.median:.2f}" + (f" ({compiling:.1f} s)" if compiling else "")


def _speed(figure: Figure) -> str:
    return f"{figure.median:.2f} ±{figure.spread:.2f}"


def _mark(row: Row, entry: Entry) -> str:
    return "ahead" if entry.speed.median >= row.best_other.speed.median else "behind"


def _ratio(figure: Figure | None) -> str:
    return f"{figure.median:.2f}" if figure else DASH


def _part(own: int | None, eager: int | None) -> str:
    return f"{own / eager:.0%}" if own is not None and eager else DASH


def _saved(row: Row, _: Entry) -> str:
    return _memory(row, lambda entry: entry.saved_bytes)


def _peak(row: Row, _: Entry) -> str:
    return _memory(row, lambda entry: entry.high_water_bytes)


def _memory(row: Row, bytes_of: Callable[[Entry], int | None]) -> str:
    """As a part of eager's, that of the fastest of ours that takes its memory in a call."""
    eager = row.entry(EAGER)
    best = _fastest(entry for entry in row.of_kind(OURS) if bytes_of(entry) is not None)
    return _part(bytes_of(best), bytes_of(eager)) if best and eager else DASH


def _floor(row: Row, name: str) -> str:
    floor = row.entry(name)
    return f"{floor.us.median:,.1f}" if floor else DASH


def _achieved(row: Row, best: Entry) -> str:
    floors = [floor.us.median for name in (BYTE, FLOP) if (floor := row.entry(name))]
    return f"{max(floors) / best.us.median:.0%}" if floors else DASH


COLUMNS: dict[str, Callable[[Row, Entry], str]] = {
    "of BLAS": lambda _, best: _ratio(best.of_blas),
    "of FMA": lambda _, best: _ratio(best.of_fma),
    "saved": _saved,
    "peak": _peak,
}
"""Of the fastest of ours, by heading; its memory, of the fastest that takes any in a call."""
CUDA_COLUMNS: dict[str, Callable[[Row, Entry], str]] = {
    "bytes µs": lambda row, _: _floor(row, BYTE),
    "FLOPs µs": lambda row, _: _floor(row, FLOP),
    "achieved": _achieved,
    "saved": _saved,
    "peak": _peak,
}
TARGET_HEADINGS = ("work", "figure", "target", "worst", "in", "good", "verdict")
STYLES = {"ahead": "green", "behind": "bold red", "": ""}


def table(run: Run) -> RenderableType:
    """All sections, the legend below."""
    parts: list[RenderableType] = []
    for section in sections(run):
        made = Table(title=section.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in section.headings[:NAMES]:
            made.add_column(heading, no_wrap=True)
        for heading in section.headings[NAMES:]:
            made.add_column(heading, justify="right", no_wrap=True)
        for line in section.lines:
            made.add_row(*(Text(cell.text, style=STYLES[cell.mark]) for cell in line))
        parts.append(made)
    return Group(*parts, Text(legend(run), style="dim"), _targets(run), *verdicts(run))


def _targets(run: Run) -> Table:
    made = Table(title="Targets", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in TARGET_HEADINGS:
        made.add_column(heading)
    for outcome in targets.outcomes(run):
        style = {True: "green", False: "red", None: "yellow"}[outcome.reached]
        made.add_row(*(Text(cell, style=style) for cell in target_cells(outcome)))
    return made


def target_cells(outcome: targets.Outcome) -> tuple[str, ...]:
    """A target in words: what, of what, how far, the worst, where that is, and whether reached."""
    target = outcome.target
    worst = "" if outcome.worst is None else f"{outcome.worst:.2f}"
    count = f"{outcome.good} of {outcome.all}" if outcome.all else ""
    not_run = "not all run" if outcome.all else "not run"
    word = {True: "reached", False: "not reached", None: not_run}[outcome.reached]
    return target.work, target.unit, target.bound, worst, outcome.where, count, word


def won(run: Run) -> str:
    """In how many of its races one of ours is the fastest way to compute the LLTM."""
    races = [(row, entry) for row in run.rows for entry in row.of_kind(OURS, STREAM)]
    ahead = sum(_mark(row, entry) == "ahead" for row, entry in races)
    return f"{ahead} of {len(races)}"


def verdicts(run: Run) -> list[Text]:
    """In words: the rows where one of ours is not the fastest way to compute the LLTM."""
    behind = [
        f"{row.name}: {entry.name} at {entry.speed.median:.2f}, "
        f"{row.best_other.name} at {row.best_other.speed.median:.2f}"
        for row in run.rows
        for entry in row.of_kind(OURS, STREAM)
        if _mark(row, entry) == "behind"
    ]
    head = f"ours ahead of everyone else in {won(run)} races"
    return [Text(head, style="bold"), *(Text(f"behind: {line}", style="red") for line in behind)]


def comparison(found: Comparison) -> RenderableType:
    """What `--compare` has to say."""
    head = (
        f"{found.compared} races of ours compared; what is not ours moved by {found.noise:.1%} "
        f"by itself; {len(found.regressions)} regression"
        f"{'' if len(found.regressions) == 1 else 's'}"
    )
    lines = [
        Text(f"regression: {regression}", style="bold red") for regression in found.regressions
    ]
    missing = [Text(f"not run: {name}", style="yellow") for name in found.missing]
    return Group(Text(head, style="bold"), *missing, *lines)
