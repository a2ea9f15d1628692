"""A run: the rows of a tier, several at a time, what is already proven kept."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from torchproof.config import Matrix
from torchproof.lock import held
from torchproof.machine.environments import Maker, installer
from torchproof.machine.inventory import Machine
from torchproof.machine.processes import Processes
from torchproof.rows.plan import Placed
from torchproof.rows.progress import Progress
from torchproof.rows.results import Result
from torchproof.rows.row import RowRun, Tools
from torchproof.rows.single_flight import SingleFlight
from torchproof.rows.wheel_builder import Builder


def tools(
    matrix: Matrix,
    machine: Machine,
    folder: Path,
    progress: Progress,
    jobs: int,
    *,
    prebuilt: bool = False,
) -> Tools:
    """What the rows of a run share, under `folder`."""
    processes = Processes()
    return Tools(
        matrix=matrix,
        folder=folder,
        maker=Maker(folder / "environments", installer(machine.running), processes, machine.gpu),
        builder=Builder(folder / "artifacts", processes),
        processes=processes,
        progress=progress,
        environments=SingleFlight(),
        artifacts=SingleFlight(),
        workers=workers(jobs),
        processor=machine.processor,
        prebuilt=prebuilt,
    )


def workers(jobs: int) -> int:
    """How many test processes a row may have; 0 is none beside pytest itself, as xdist counts."""
    share = (os.cpu_count() or 1) // jobs
    return share if share > 1 else 0


@contextmanager
def _pool(tools: Tools, jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that rows run on, alone in the folder; whatever ends them ends their commands."""
    with held(tools.folder):
        pool = ThreadPoolExecutor(jobs)
        try:
            yield pool
        except BaseException:
            tools.processes.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def build(placed: Iterable[Placed], tools: Tools, *, jobs: int) -> tuple[Result, ...]:
    """Build the wheels that rows need, `jobs` at a time, each once; nothing is tested.

    Raises:
        BusyError: another run is at work in the folder.
    """
    rows = [RowRun(p, tools) for p in placed]
    with _pool(tools, jobs) as pool:
        tools.progress.start(len(rows), kept=0)
        for done in [pool.submit(row.build) for row in rows]:
            done.result()
    return tuple(row.result for row in rows)


def run(placed: Iterable[Placed], tools: Tools, *, jobs: int, resume: bool) -> tuple[Result, ...]:
    """Run rows, `jobs` at a time, and their timing at the end.

    Every result is on disk as soon as it is known. With `resume`, a row that passed keeps its
    result where nothing that decides it has changed: sources, tests, programs, matrix.toml.

    Raises:
        BusyError: another run is at work in the folder.
    """
    rows = [RowRun(p, tools) for p in placed]
    with _pool(tools, jobs) as pool:
        if resume:
            for row in rows:
                row.recall()
        todo = [row for row in rows if not row.timed]
        tools.progress.start(len(todo), kept=len(rows) - len(todo))
        for done in [pool.submit(row.prove) for row in todo if not row.proven]:
            done.result()
        # Nothing compiles or tests while rows are timed, and each runs on one thread.
        for done in [pool.submit(row.time) for row in todo if row.proven and not row.timed]:
            done.result()
    return tuple(row.result for row in rows)
