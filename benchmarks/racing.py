"""Time competitors against each other: every round times each of them once, in a random order.

What slows the machine down for a while then slows all of them, and the ratio of two times of one
round is free of it.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.workloads import Call, Row

BLOCK_SECONDS = 2e-3
"""Calls shorter than this are timed several at a time."""
WARM_UP_SECONDS = 0.03
WARM_UP_CALLS = 2
ROUNDS = (5, 200)
"""Fewest and most."""

Clock = Callable[[], float]
Stopwatch = Callable[[list[Call]], float]
"""Makes the calls, and returns the seconds that they took together."""


def by_clock(clock: Clock) -> Stopwatch:
    """Between two readings of a clock, in seconds."""

    def measure(calls: list[Call]) -> float:
        start = clock()
        for call in calls:
            call()
        return clock() - start

    return measure


def by_events(calls: list[Call]) -> float:
    """Between two CUDA events, so that the GPU's own clock is read, and all of its work is in."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for call in calls:
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def stopwatch(row: Row) -> Stopwatch:
    """The one for a row.

    On one CPU thread it reads the CPU time of the process, which does not run while another process
    has the core (and which counts all of them, should a competitor start threads nobody allowed
    it); for more threads that would add them up, so there it is the time of day.
    """
    if row.device == "cuda":
        return by_events
    return by_clock(time.process_time if row.threads == 1 else time.perf_counter)


Prepare = Callable[[int], list[Call]]
"""A count to that many calls, each to be made once."""


def _block(calls: list[Call], measure: Stopwatch) -> float:
    """Seconds per call."""
    return measure(calls) / len(calls)


def _warm_up(prepare: Prepare, measure: Stopwatch) -> float:
    """Seconds of one warm call."""
    spent, times = 0.0, []
    while len(times) < WARM_UP_CALLS or spent < WARM_UP_SECONDS:
        times.append(_block(prepare(1), measure))
        spent += times[-1]
    return min(times)


def race(
    entrants: Mapping[str, Prepare], seconds: float, measure: Stopwatch
) -> dict[str, list[float]]:
    """Time every entrant.

    Args:
        entrants: by name, what prepares the calls to be timed.
        seconds: about how long the timed rounds may take together.
        measure: what times the calls of an entrant.

    Returns:
        Seconds per call by entrant, one entry a round; entries of the same index are of the same
        round.
    """
    counts = {
        name: max(1, round(BLOCK_SECONDS / _warm_up(prepare, measure)))
        for name, prepare in entrants.items()
    }
    times: dict[str, list[float]] = {name: [] for name in entrants}
    order = list(entrants)
    shuffle = random.Random(0).shuffle
    fewest, most = ROUNDS
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        for done in range(most):
            if done >= fewest and time.perf_counter() > end:
                break
            shuffle(order)
            for name in order:
                times[name].append(_block(entrants[name](counts[name]), measure))
            gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return times
