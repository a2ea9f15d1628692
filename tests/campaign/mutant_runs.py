"""Runs of pytest on packages with mutants, each forked from a process that has torch imported."""

from __future__ import annotations

import contextlib
import hashlib
import math
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mutant_build import HOME, TORCHPROOF
from record import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["__main__", "numpy", "pytest", "torch", "torch.testing"])
# Seconds of a run of the tests that reach a mutant, which it may make hang.
LIMIT_S = 240.0
TIMEOUT = 124
# pytest's status where it cannot find what it is asked to run.
NO_TESTS = 4
SELECTED = "not subprocess and not compile and not distributed"


class NoTimeLeftError(Exception):
    """The campaign's time is over before a run has ended: it says nothing of its mutant."""


@dataclass(frozen=True)
class Ended:
    """A run of pytest: its status, TIMEOUT where it took too long, and what it printed."""

    code: int
    output: str


def arguments(tests: Iterable[str], path: Path, *options: str) -> list[str]:
    """For pytest, to run tests on the packages of a folder."""
    home = ROOT / "torchproof" if path == TORCHPROOF or "audit" in path.parts else ROOT
    listed = HOME / "lists" / f"{hashlib.sha256(repr((path, tests)).encode()).hexdigest()[:16]}.txt"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(f"{home}/{test}" for test in tests), encoding="utf-8")
    plain = ["-q", "-p", "no:cacheprovider", "--tb=line", "-c", str(home / "pyproject.toml")]
    return [*plain, "--rootdir", str(home), *options, f"@{listed}"]


def environment(path: Path) -> dict[str, str]:
    """For a process that imports the packages of a folder."""
    return {"PYTHONPATH": f"{path}{os.pathsep}{Path(__file__).parent}"}


def run_forked(args: list[str], path: Path, number: int, limit: float) -> Ended:
    """Run pytest on a mutant; what it has started ends with it."""
    log = HOME / "logs" / f"{number}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = SERVER.Process(target=forked, args=(args, path, number, log))
    process.start()
    process.join(limit)
    code = TIMEOUT if process.is_alive() else process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return Ended(code, log.read_text(encoding="utf-8", errors="replace"))


def forked(args: list[str], path: Path, number: int, log: Path) -> None:
    """Run pytest in this process, a copy of one that has torch imported."""
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment(path), LLTM_MUTANT=str(number))
    os.chdir(path)
    sys.path[:] = [str(path), *(folder for folder in sys.path if folder != str(TORCHPROOF))]
    code = pytest.main(args)
    sys.stdout.flush()
    os._exit(code)


def fails(
    tests: Iterable[str],
    path: Path,
    number: int,
    *,
    limit: float = LIMIT_S,
    end: float = math.inf,
    hangs: bool = True,
) -> bool:
    """Whether a test fails on a mutant, or it ends the process, or they hang if that counts.

    Raises:
        NoTimeLeftError: the campaign's time was over first.
    """
    selected = ("-m", SELECTED) if "tests/op" in next(iter(tests)) else ()
    options = ("-x", "-p", "no:xdist", *selected)
    left = max(end - time.monotonic(), 0)
    done = run_forked(arguments(tests, path, *options), path, number, min(limit, left))
    if done.code == TIMEOUT and left < limit:
        raise NoTimeLeftError
    if done.code == NO_TESTS and "rror: " not in done.output:
        raise SystemExit(f"mutant {number}: no test was run: {done.output[-2000:]}")
    return done.code != 0 and (hangs or done.code != TIMEOUT)
