"""One row: competitors prepared, checked, and raced with the floors among them."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import memory
import torch

from benchmarks import floors
from benchmarks.competitors import Competitor, check
from benchmarks.not_here import NotHere
from benchmarks.racing import Prepare, race, stopwatch
from benchmarks.workloads import Foreign, Problem, Row, Share


@dataclass(frozen=True)
class Contest:
    """What a row came to.

    Attributes:
        row: the row.
        competitors: who was asked, by name.
        id: unlike any other contest's; only times of one contest belong together.
        seconds: by competitor and floor, seconds per call, one entry a round.
        saved_bytes: by competitor, what autograd keeps for the backward pass.
        high_water_bytes: by competitor, the most that is held at one time.
        compile_seconds: by competitor, how long its first result took beyond a later one.
        wrong: by competitor, why its result was not accepted; it was not timed.
        not_run: by competitor, why it cannot compute the row here.
    """

    row: Row
    competitors: dict[str, Competitor] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    saved_bytes: dict[str, int] = field(default_factory=dict)
    high_water_bytes: dict[str, int] = field(default_factory=dict)
    compile_seconds: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)


@contextmanager
def setting(row: Row) -> Iterator[None]:
    """The row's thread count, grad mode and precision of float32 products."""
    threads = torch.get_num_threads()
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_num_threads(row.threads)
    torch.set_float32_matmul_precision("high" if row.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = row.tf32
    try:
        with torch.set_grad_enabled(row.work.grad):
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = cudnn
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


def hold(
    row: Row, competitors: Sequence[Competitor], seconds: float, *, with_floors: bool = True
) -> Contest:
    """Race competitors over a row.

    Args:
        row: the row.
        competitors: who is raced; those that do not compute the row's op are left out.
        seconds: about how long to time, behind the preparations.
        with_floors: whether to race the floors too.
    """
    contest = Contest(row, {competitor.name: competitor for competitor in competitors})
    entrants: dict[str, Prepare] = {}
    with setting(row):
        for competitor in competitors:
            if not competitor.takes_part(row):
                continue
            try:
                problem = competitor.problem(row)
                check(competitor, problem, row)
            except NotHere as reason:
                contest.not_run[competitor.name] = str(reason)
                continue
            except AssertionError as error:
                contest.wrong[competitor.name] = str(error)
                continue
            entrants[competitor.name] = _prepare(row, problem)
            if isinstance(problem, Foreign) and problem.compile_seconds is not None:
                contest.compile_seconds[competitor.name] = problem.compile_seconds
        found = floors.of(row) if with_floors else {}
        entrants |= {name: prepare for name, (prepare, _) in found.items()}
        times = race(entrants, seconds, stopwatch(row))
    for name, (_, factor) in found.items():
        times[name] = [factor * seconds for seconds in times[name]]
    contest.seconds.update(times)
    return contest


def _prepare(row: Row, problem: Share) -> Prepare:
    return lambda count: row.work.calls(problem, count)


def weigh(contest: Contest, competitors: Sequence[Competitor]) -> None:
    """Add the memory of those that were timed and take it in a call."""
    with setting(contest.row):
        for competitor in competitors:
            if competitor.name in contest.seconds:
                problem = competitor.problem(contest.row)
                if isinstance(problem, Problem) and problem.allocates:
                    _weigh(contest, competitor.name, problem)


def _weigh(contest: Contest, name: str, problem: Problem) -> None:
    high_water = memory.HIGH_WATER[contest.row.device]
    if not contest.row.work.grad:
        contest.high_water_bytes[name] = high_water(problem.call)
        return
    contest.saved_bytes[name] = memory.saved_bytes(problem.call, problem.arguments)
    contest.high_water_bytes[name] = high_water(problem.gradients)


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the distance between the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return statistics.median(values), (high - low) / 2
