"""Work for two processors at a time, in processes: rattler-build lets no other thread run."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrix.conda.steps import Steps

Value = TypeVar("Value")
LANES = 2


def run(
    steps: Steps, tasks: Sequence[tuple[str, Callable[[], Value]]], lanes: int = LANES
) -> list[Value]:
    """Do every task, each shown as a step of its name; their values, in order.

    Args:
        steps: where each task is told of.
        tasks: a name, and what to do: a `functools.partial` of a module's function, as it is
            handed to another process.
        lanes: how many at a time.
    """
    if not tasks:
        return []
    # Spawned: a fork would inherit rattler's threads as locks nobody opens.
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(lanes, mp_context=context) as processes,
        ThreadPoolExecutor(lanes) as threads,
    ):

        def work(task: tuple[str, Callable[[], Value]]) -> Value:
            name, call = task
            with steps.step(name):
                return processes.submit(call).result()

        return list(threads.map(work, tasks))
