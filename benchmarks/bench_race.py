"""Ours against everyone else on the same problem in the same rounds, and against the floors.

Run by ``nox -s bench``, or by itself::

    pytest benchmarks/bench_race.py --rows quick --benchmark-json FILE

Every entrant of a row is a test: its result is checked before the row is timed, and its times,
which were taken in rounds with those of the others, enter pytest-benchmark's statistics and JSON.
There the n-th time of two entrants of a row are of the same round, and their ratio is the figure
to read; a time by itself means nothing elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import contest
from benchmarks.competitors import Competitor
from benchmarks.contest import Contest
from benchmarks.workloads import Row


class Replay:
    """A clock that hands pytest-benchmark times already taken: one round between two readings."""

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, seconds: list[float]) -> None:
        self._readings = iter([reading for time in seconds for reading in (0.0, time)])

    def __call__(self) -> float:
        return next(self._readings)


REPLAY = Replay()


# Held once for all the entrants of a row: pytest has them one after the other.
@functools.lru_cache(maxsize=1)
def hold_once(
    row: Row, taking_part: tuple[Competitor, ...], seconds: float, thorough: bool
) -> Contest:
    """The contest; a thorough one with the floors and everyone's memory."""
    held = contest.hold(row, taking_part, seconds, with_floors=thorough)
    if thorough:
        contest.weigh(held, taking_part)
    return held


@pytest.fixture
def held(request: pytest.FixtureRequest) -> Contest:
    """The row's contest."""
    row, taking_part, thorough = request.param
    seconds = float(request.config.getoption("--benchmark-max-time"))
    return hold_once(row, taking_part, seconds, thorough)


@pytest.mark.benchmark(timer=REPLAY)
def test_race(held: Contest, entrant: str, benchmark: Any) -> None:
    if entrant in held.not_run:
        pytest.skip(f"not run: {held.not_run[entrant]}")
    assert entrant not in held.wrong, held.wrong[entrant]
    seconds = held.seconds[entrant]
    benchmark.group = held.row.name
    benchmark.extra_info.update(held.row.fields(), competitor=entrant, contest=held.id)
    competitor = held.competitors.get(entrant)
    if competitor is not None:
        benchmark.extra_info.update(
            kind=competitor.kind,
            backend=competitor.backend,
            saved_bytes=held.saved_bytes.get(entrant),
            high_water_bytes=held.high_water_bytes.get(entrant),
            compile_seconds=held.compile_seconds.get(entrant),
        )
    else:
        benchmark.extra_info.update(kind="floor", backend=None)
    REPLAY.load(seconds)
    benchmark.pedantic(lambda: None, rounds=len(seconds))
