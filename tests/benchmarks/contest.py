"""One row, raced: competitors prepared, checked, and timed with the floors among them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from benchmarks import floors
from benchmarks.competitors import LSTM_SHARE, Competitor, check
from benchmarks.racing import Prepare, clock, race
from benchmarks.workloads import Problem, Row

EAGER = "eager"
BLAS = "blas floor"
FMA = "fma floor"
LSTM = "lstm"
SCALED_LSTM = "lstm x 3/4"


@dataclass(frozen=True)
class Contest:
    """The times of a row.

    Attributes:
        row: the row.
        seconds: by competitor and floor, one entry a round.
        wrong: by competitor, why its result was not accepted; it was not timed.
    """

    row: Row
    seconds: dict[str, list[float]]
    wrong: dict[str, str]

    def ratios(self, name: str, to: str = EAGER) -> list[float]:
        """How many times faster than ``to``, round by round."""
        return [b / a for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]


@contextmanager
def setting(row: Row) -> Iterator[None]:
    """The row's thread count and grad mode."""
    threads = torch.get_num_threads()
    torch.set_num_threads(row.threads)
    try:
        with torch.set_grad_enabled(row.work.grad):
            yield
    finally:
        torch.set_num_threads(threads)


def hold(row: Row, competitors: Sequence[Competitor], seconds: float) -> Contest:
    """Race the competitors over a row, for about that many seconds behind the preparations."""
    torch.compiler.reset()
    entrants = {}
    wrong = {}
    with setting(row):
        for competitor in competitors:
            if row.case.op not in competitor.ops:
                continue
            problem = competitor.problem(row)
            try:
                check(competitor, problem, row)
            except AssertionError as error:
                wrong[competitor.name] = str(error)
                continue
            entrants[competitor.name] = _preparation(row, problem)
        entrants[BLAS] = floors.blas(row)
        entrants[FMA], factor = floors.fma_rate(row)
        times = race(entrants, seconds, clock(row.threads))
    times[FMA] = [factor * time for time in times[FMA]]
    if LSTM in times:
        times[SCALED_LSTM] = [LSTM_SHARE * time for time in times[LSTM]]
    return Contest(row, times, wrong)


def _preparation(row: Row, problem: Problem) -> Prepare:
    return lambda count: row.work.calls(problem, count)


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the distance between the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return statistics.median(values), (high - low) / 2
