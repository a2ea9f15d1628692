"""One worker process for each processor: rattler-build lets no other thread run."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from torchproof.conda.steps import Steps

Value = TypeVar("Value")


class WorkerPool:
    """Takes tasks, and begins them in the order they are handed in, as soon as a worker is free."""

    def __init__(
        self, steps: Steps, threads: ThreadPoolExecutor, processes: ProcessPoolExecutor
    ) -> None:
        self._steps = steps
        self._threads = threads
        self._processes = processes

    def submit(self, name: str, call: Callable[[], Value]) -> Future[Value]:
        """Hand in a task.

        Args:
            name: the step it is shown as.
            call: a `functools.partial` of a module's function, as it goes to another process.
        """
        return self._threads.submit(self._work, name, call)

    def _work(self, name: str, call: Callable[[], Value]) -> Value:
        with self._steps.step(name):
            return self._processes.submit(call).result()


@contextmanager
def worker_pool(steps: Steps) -> Iterator[WorkerPool]:
    """A pool; at its end every task is done, and after an error no further task is begun."""
    # Spawned: a fork would inherit rattler's threads as locks nobody opens.
    context = multiprocessing.get_context("spawn")
    workers = os.cpu_count() or 1
    processes = ProcessPoolExecutor(workers, mp_context=context)
    threads = ThreadPoolExecutor(workers)
    try:
        yield WorkerPool(steps, threads, processes)
    except BaseException:
        threads.shutdown(cancel_futures=True)
        raise
    finally:
        threads.shutdown()
        processes.shutdown()


def done(value: Value) -> Future[Value]:
    """What is known already, in the shape of what a worker returns."""
    future: Future[Value] = Future()
    future.set_result(value)
    return future
