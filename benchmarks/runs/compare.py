"""A run against a stored one of the same hardware: what has become slower, beyond the noise.

Two runs of the same code differ: by what varies from round to round, which the spread of a row
shows, and by what differs from process to process, such as where the tensors lie. The second
shows in the competitors that are not ours: their code is the same in both runs, so how far they
moved against eager is how far anything moves by itself.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.runs.figures import EAGER, OTHER, OURS, BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.runs.figures import Entry, Row, Run

# Of the movements of the others, the one that only one in twenty exceeds.
TWENTIETHS = 20


@dataclass(frozen=True)
class Regression:
    """One entrant of ours that does worse on a row.

    Attributes:
        row: the row's name.
        entry: the entrant's name.
        what: ``speed``, ``saved_bytes`` or ``high_water_bytes``.
        stored: its value in the stored run.
        now: its value in this one.
        allowed: the part of `stored` that noise explains.
    """

    row: str
    entry: str
    what: str
    stored: float
    now: float
    allowed: float

    def __str__(self) -> str:
        """One line for people."""
        if self.what == "speed":
            return (
                f"{self.row}: {self.entry} was {self.stored:.3f}x eager and is {self.now:.3f}x, "
                f"{1 - self.now / self.stored:.1%} less; noise explains {self.allowed:.1%}"
            )
        return (
            f"{self.row}: {self.entry} {self.what.replace('_', ' ')} rose from "
            f"{self.stored:,.0f} to {self.now:,.0f}"
        )


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        noise: how far, as a part, the competitors that are not ours moved by themselves.
        compared: how many entrants of ours were held against their stored figures.
        missing: rows of ours in the stored run that this one did not measure.
        regressions: what became worse.
    """

    noise: float
    compared: int
    missing: tuple[str, ...]
    regressions: tuple[Regression, ...]


def compare(now: Run, stored: Run) -> Comparison:
    """Hold a run against a stored one.

    Raises:
        BenchError: the runs are of different hardware, or have no row in common.
    """
    if differences := _differences(stored, now):
        raise BenchError(
            f"the stored run is of other hardware, {differences}; times compare on one machine "
            "only: store a run made here"
        )
    pairs = list(_pairs(now, stored))
    ours = [(row, new, old) for row, new, old in pairs if new.kind == OURS]
    if not ours:
        raise BenchError(
            "the stored run and this one have no row of ours in common; run the same --quick, "
            "--full or --select"
        )
    noise = _noise([(new, old) for _, new, old in pairs if new.kind == OTHER])
    regressions = [
        regression for row, new, old in ours for regression in _regressions(row, new, old, noise)
    ]
    measured = {row.name for row in now.rows}
    missing = tuple(row.name for row in stored.rows if row.name not in measured)
    return Comparison(noise, len(ours), missing, tuple(regressions))


def _differences(stored: Run, now: Run) -> str:
    """What the stored run knows of its hardware and is not so here; empty where all is."""
    old, new = _facts(stored.hardware), _facts(now.hardware)
    return ", ".join(
        f"{name} {value!r} not {new.get(name)!r}"
        for name, value in old.items()
        if value is not None and value != new.get(name)
    )


def _facts(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """Every fact by its name; of a list, each member is one."""
    found: dict[str, Any] = {}
    for name, value in hardware.items():
        if isinstance(value, dict):
            found |= _facts(value)
        elif isinstance(value, (list, tuple)):
            found |= dict.fromkeys(value, True)
        else:
            found[name] = value
    return found


def _pairs(now: Run, stored: Run) -> Iterator[tuple[Row, Entry, Entry]]:
    rows = {row.name: row for row in stored.rows}
    for row in now.rows:
        if row.name in rows:
            for entry in row.entries:
                old = rows[row.name].entry(entry.name)
                if old is not None and entry.name != EAGER:
                    yield row, entry, old


def _noise(others: list[tuple[Entry, Entry]]) -> float:
    moved = [abs(math.log(new.speed.median / old.speed.median)) for new, old in others]
    if len(moved) < 2:
        return sum(moved)
    return statistics.quantiles(moved, n=TWENTIETHS, method="inclusive")[-1]


def _regressions(row: Row, new: Entry, old: Entry, noise: float) -> Iterator[Regression]:
    allowed = math.hypot(new.speed.relative, old.speed.relative) + noise
    if new.speed.median < old.speed.median * (1 - allowed):
        yield Regression(row.name, new.name, "speed", old.speed.median, new.speed.median, allowed)
    for what in ("saved_bytes", "high_water_bytes"):
        before, after = getattr(old, what), getattr(new, what)
        if before is not None and after is not None and after > before:
            yield Regression(row.name, new.name, what, before, after, 0.0)
