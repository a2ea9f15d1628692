"""Runs of pytest on packages with mutants, each forked from a process that has torch imported."""

from __future__ import annotations

import contextlib
import hashlib
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mutant_build import COMPILED, HOME, TORCHPROOF

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["__main__", "numpy", "pytest", "torch", "torch.testing"])
# Seconds of a run of the tests that reach a mutant, which it may make hang.
LIMIT_S = 240.0
TIMEOUT = 124
# pytest's statuses where it cannot find what it is asked to run, and where nothing is left to run.
NO_TESTS, NOTHING_LEFT = 4, 5
# Files of a run: what pytest printed, and the tests that began.
OUTPUT, BEGUN = "output.txt", "begun.txt"
# The number of no mutant.
UNDISTURBED = -1


class NoTimeLeftError(Exception):
    """The campaign's time is over before a run has ended: it says nothing of its mutant."""


@dataclass(frozen=True)
class Suite:
    """Tests of a part of the sources.

    Attributes:
        home: the folder of their pyproject.toml, where their names begin.
        surveyed: the files that the survey runs; `whole`: everything there is.
        selected: an expression of the markers of what the survey runs.
    """

    home: Path
    surveyed: tuple[str, ...]
    whole: tuple[str, ...]
    selected: str = ""


@dataclass(frozen=True)
class Ended:
    """A run of pytest.

    Attributes:
        code: its status, TIMEOUT where it took too long.
        output: what it printed.
        begun: the tests that began, in their order.
    """

    code: int
    output: str
    begun: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether a test failed, or ended the process, or took too long."""
        return self.code not in (0, NOTHING_LEFT)


class Begun:
    """A pytest plugin that notes each test as it begins, and leaves some out."""

    def __init__(self, file: Path, left_out: frozenset[str]) -> None:
        self._file, self._left_out = file, left_out

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._left_out]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{nodeid}\n")


def arguments(suite: Suite, tests: Iterable[str], *options: str) -> list[str]:
    """For pytest, to run some tests of a suite."""
    named = [str(suite.home / test) for test in tests]
    listed = HOME / "lists" / f"{hashlib.sha256(repr(named).encode()).hexdigest()[:16]}.txt"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(named), encoding="utf-8")
    plain = ["-q", "-p", "no:cacheprovider", "--tb=line", "-c", str(suite.home / "pyproject.toml")]
    return [*plain, "--rootdir", str(suite.home), *options, f"@{listed}"]


def environment(path: Path) -> dict[str, str]:
    """For a process that imports the packages of a folder."""
    compiled = path / COMPILED
    own = {"TORCH_EXTENSIONS_DIR": str(compiled)} if compiled.is_dir() else {}
    return own | {"PYTHONPATH": f"{path}{os.pathsep}{Path(__file__).parent}"}


def run_until_failure(
    suite: Suite,
    tests: Iterable[str],
    path: Path,
    number: int,
    *,
    limit: float = LIMIT_S,
    end: float = math.inf,
    left_out: frozenset[str] = frozenset(),
    options: tuple[str, ...] = (),
) -> Ended:
    """Run tests on a mutant until one fails; what they have started ends with them.

    Raises:
        NoTimeLeftError: the campaign's time was over first.
    """
    args = arguments(suite, tests, "-x", "-p", "no:xdist", *options)
    left = max(end - time.monotonic(), 0)
    with tempfile.TemporaryDirectory() as made:
        notes = Path(made)
        process = SERVER.Process(target=forked, args=(args, path, number, notes, left_out))
        process.start()
        process.join(min(limit, left))
        code = TIMEOUT if process.is_alive() else process.exitcode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        output, begun = (read(notes / name) for name in (OUTPUT, BEGUN))
    if code == TIMEOUT and left < limit:
        raise NoTimeLeftError
    if code == NO_TESTS and "rror: " not in output:
        raise SystemExit(f"mutant {number}: no test was run: {output[-2000:]}")
    return Ended(code, output, tuple(begun.splitlines()))


def read(path: Path) -> str:
    """What a run wrote, if it came to that."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def forked(args: list[str], path: Path, number: int, notes: Path, left_out: frozenset[str]) -> None:
    """Run pytest in this process, a copy of one that has torch imported."""
    os.setsid()
    file = os.open(notes / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # Killed tests leave temporary files, which end with the notes.
    tempfile.tempdir = str(notes)
    os.environ.update(environment(path), LLTM_MUTANT=str(number), TMPDIR=str(notes))
    os.chdir(path)
    sys.path[:] = [str(path), *(folder for folder in sys.path if folder != str(TORCHPROOF))]
    code = pytest.main(args, plugins=[Begun(notes / BEGUN, left_out)])
    sys.stdout.flush()
    os._exit(code)
