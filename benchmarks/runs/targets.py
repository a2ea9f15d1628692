"""The targets of the kernels, and how far a run is from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.runs.figures import OURS, SCALED_LSTM, TUTORIAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.runs.figures import Entry, Row, Run

TRAINING_STEP = "forward+backward"
CASES = 5
"""Of the cell, and of the sequence."""
ROWS = 2 * CASES * 4 * 2
"""Two ops, four kinds of work, one and two threads."""


def _speed(row: Row, entry: Entry) -> float:
    return entry.speed.median


def _against_best(row: Row, entry: Entry) -> float | None:
    """Of eager and torch.compile; none where the latter did not run, since a part is no proof."""
    compiled = row.entry("compile")
    if compiled is None:
        return None
    return entry.speed.median / max(1.0, compiled.speed.median)


def _of_blas(row: Row, entry: Entry) -> float | None:
    return entry.of_blas.median if entry.of_blas else None


def _of_lstm(row: Row, entry: Entry) -> float | None:
    lstm = row.entry(SCALED_LSTM)
    return lstm.speed.median / entry.speed.median if lstm else None


def _of_tutorial(row: Row, entry: Entry) -> float | None:
    tutorial = row.entry(TUTORIAL)
    return entry.speed.median / tutorial.speed.median if tutorial else None


def _of_compiler(row: Row, entry: Entry) -> float | None:
    """Of torch.compile's better mode; none where not both ran."""
    modes = [row.entry(name) for name in ("compile", "max-autotune")]
    speeds = [mode.speed.median for mode in modes if mode]
    return entry.speed.median / max(speeds) if len(speeds) == len(modes) else None


Value = Callable[["Row", "Entry"], "float | None"]


@dataclass(frozen=True)
class Target:
    """A bound on some rows.

    Attributes:
        work: the rows, in words.
        rows: which they are, by their fields.
        entries: the bindings meant; empty for any.
        unit: what `value` gives, in words.
        value: the figure; None where the row cannot tell.
        limit: the bound.
        at_least: whether it is one from below.
        count: how many rows there are.
    """

    work: str
    rows: Mapping[str, object]
    entries: tuple[str, ...]
    unit: str
    value: Value
    limit: float
    at_least: bool
    count: int = 1

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:.1f}"

    def met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value >= self.limit if self.at_least else value <= self.limit


def _eager(case: str, work: str, limit: float, *entries: str) -> Target:
    op = "cell" if case.count("x") == 2 else "sequence"
    rows = {"op": op, "case": case, "work": work, "threads": 1, "dtype": "float32"}
    words = f"{op} {case} {work}" + (f", {' '.join(entries)}" if entries else "")
    return Target(words, rows, entries, "times as fast as eager", _speed, limit, at_least=True)


SEQUENCES = {"op": "sequence", "work": TRAINING_STEP, "threads": 1, "dtype": "float32"}
TARGETS = (
    _eager("16x32x128", "forward", 2.0, "native"),
    _eager("16x32x128", "forward", 1.4, "stable"),
    _eager("16x32x128", "backward", 1.4),
    _eager("16x32x128", "inference", 2.0),
    Target(
        "every row, 1 and 2 threads",
        {"dtype": "float32"},
        (),
        "times as fast as the best of eager and compile",
        _against_best,
        1.0,
        at_least=True,
        count=ROWS,
    ),
    _eager("64x16x32x128", TRAINING_STEP, 3.5),
    _eager("64x16x128x256", TRAINING_STEP, 2.0),
    _eager("64x1x256x512", TRAINING_STEP, 3.5),
    Target(
        f"every sequence {TRAINING_STEP}",
        SEQUENCES,
        (),
        "time of the BLAS floor's",
        _of_blas,
        1.0,
        at_least=False,
        count=CASES,
    ),
    Target(
        f"every sequence {TRAINING_STEP}",
        SEQUENCES,
        (),
        f"time of {SCALED_LSTM}",
        _of_lstm,
        0.8,
        at_least=False,
        count=CASES,
    ),
)


BINDINGS = ("stable", "native")
WORKS, PRECISIONS, CUDA_SEQUENCES = 4, 3, 5
CUDA_CELL = {"op": "cell", "case": "16x32x128"}


def _on_gpu(
    work: str, rows: Mapping[str, object], unit: str, value: Value, limit: float, count: int
) -> Target:
    return Target(work, rows, BINDINGS, unit, value, limit, at_least=True, count=count)


CUDA_TARGETS = (
    *(
        _on_gpu(
            f"cell 16x32x128 {work}",
            {**CUDA_CELL, "work": work},
            "times as fast as eager",
            _speed,
            2.0,
            PRECISIONS,
        )
        for work in ("forward", "backward")
    ),
    _on_gpu(
        "cell 16x32x128, float32 and tf32",
        CUDA_CELL,
        "times as fast as the tutorial's CUDA design",
        _of_tutorial,
        1.0,
        WORKS * (PRECISIONS - 1),
    ),
    Target(
        "every sequence",
        {"op": "sequence"},
        BINDINGS,
        f"time of {SCALED_LSTM}",
        _of_lstm,
        1.0,
        at_least=False,
        count=CUDA_SEQUENCES * WORKS * PRECISIONS,
    ),
    *(
        _on_gpu(
            f"sequence {case}",
            {"op": "sequence", "case": case},
            "times as fast as torch.compile",
            _of_compiler,
            3.0,
            WORKS * PRECISIONS,
        )
        for case in ("64x16x32x128", "128x1x512x512")
    ),
)
"""On a GPU of Hopper's class."""


@dataclass(frozen=True)
class Outcome:
    """What a run says of a target.

    Attributes:
        target: the target.
        worst: the value furthest from the good; None where no row could tell.
        where: the row and binding of the worst.
        good: how many values met the bound.
        all: how many values there are.
        complete: whether every row was measured.
    """

    target: Target
    worst: float | None
    where: str
    good: int
    all: int
    complete: bool

    @property
    def reached(self) -> bool | None:
        """Whether every value met the bound; None where those that did are not all there are."""
        if self.good < self.all:
            return False
        return True if self.complete else None


def outcomes(run: Run) -> Iterator[Outcome]:
    """Every target, in order."""
    for target in CUDA_TARGETS if run.on_gpu else TARGETS:
        found = list(_values(run, target))
        if not found:
            yield Outcome(target, None, "", 0, 0, complete=False)
            continue
        worst, row, entry = (min if target.at_least else max)(found)
        good = sum(target.met(value) for value, _, _ in found)
        complete = len({name for _, name, _ in found}) == target.count
        yield Outcome(target, worst, f"{row}, {entry}", good, len(found), complete)


def worst(runs: Mapping[str, Run]) -> Iterator[tuple[str, Outcome]]:
    """For every target, the record that is furthest from it, its outcome there, and its name.

    A record that has not measured a target is further than any figure: it proves nothing.
    """
    by_run = {name: list(outcomes(run)) for name, run in runs.items()}
    for at, target in enumerate(TARGETS):
        found = [(name, each[at]) for name, each in by_run.items()]
        sign = -1 if target.at_least else 1
        yield max(found, key=lambda pair: _distance(pair[1], sign))


def _distance(outcome: Outcome, sign: int) -> tuple[int, float]:
    """Missed before not all measured before reached; then the figure."""
    order = {False: 2, None: 1, True: 0}[outcome.reached]
    return order, sign * (outcome.worst or 0.0)


def _values(run: Run, target: Target) -> Iterator[tuple[float, str, str]]:
    for row in run.rows:
        if any(getattr(row, key) != value for key, value in target.rows.items()):
            continue
        for entry in row.of_kind(OURS):
            if target.entries and entry.name not in target.entries:
                continue
            value = target.value(row, entry)
            if value is not None:
                yield value, row.name, entry.name
