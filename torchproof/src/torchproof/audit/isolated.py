"""Audits in a process with limits: a file that is made to exhaust it ends that process alone."""

import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from torchproof.audit.apply_rules import audit
from torchproof.audit.artifact import ArtifactError
from torchproof.audit.findings import Report
from torchproof.audit.policy import Policy

if sys.platform != "win32":
    import resource


@dataclass(frozen=True)
class Budget:
    """What the audit of one file may take: a wheel of 511 MiB took 7 s and 80 MB."""

    seconds: int = 300
    memory: int = 4 << 30


class Auditor:
    """Audits one file after another in a process of their own."""

    def __init__(self, policy: Policy, against: list[Path], budget: Budget | None = None) -> None:
        self._arguments = policy, against, budget or Budget()
        # The process is given its scratch, because one that is ended removes nothing.
        self._scratch = tempfile.TemporaryDirectory(prefix="audit-")
        self._pool = self._started()

    def __enter__(self) -> "Auditor":
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._scratch.cleanup()

    def _started(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, spawn, _begin, (self._scratch.name,))

    def audit(self, file: Path) -> Report:
        """Audit a file."""
        try:
            return self._pool.submit(_audit, file, *self._arguments).result()
        except (BrokenProcessPool, MemoryError) as error:
            self._pool.shutdown(cancel_futures=True)
            self._pool = self._started()
            budget = self._arguments[2]
            raise ArtifactError(
                f"{file} was not audited: that took more than {budget.seconds} s or"
                f" {budget.memory >> 20} MiB, or crashed; is it damaged?"
            ) from error


def _begin(scratch: str) -> None:
    tempfile.tempdir = scratch
    threading.Thread(target=_end_with_starter, args=(scratch,), daemon=True).start()


def _end_with_starter(scratch: str) -> None:
    """One that was killed removes nothing, and this process would wait for its next file."""
    starter = multiprocessing.parent_process()
    assert starter is not None
    starter.join()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def _audit(file: Path, policy: Policy, against: list[Path], budget: Budget) -> Report:
    if sys.platform == "linux":
        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = int(usage.ru_utime + usage.ru_stime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + budget.seconds, resource.RLIM_INFINITY))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        mapped = pages * resource.getpagesize() + budget.memory
        resource.setrlimit(resource.RLIMIT_AS, (mapped, resource.RLIM_INFINITY))
    return audit(file, policy, against)
