"""A pytest plugin that notes which mutants and Python lines each test reaches, if it passes.

C++: LLTM_REACHED, the file that mutant.h maps. Python: coverage.py, whose context is the test.
"""

from __future__ import annotations

import collections
import json
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage

if TYPE_CHECKING:
    import pytest

MOST = 4096
FOLDER = Path(os.environ["LLTM_REACHED_FOLDER"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
# Read by the library when it is loaded.
FILE = FOLDER / f"bytes-{WORKER}"
FILE.write_bytes(bytes(MOST))
os.environ["LLTM_REACHED"] = str(FILE)


class Reached:
    """What each test of this process has reached."""

    def __init__(self) -> None:
        with FILE.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), MOST)
        self._found: dict[str, dict[str, Any]] = {}
        self._loaded: list[int] | None = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._loaded is None:
            self._loaded = self._reached()  # when the library was loaded, for every test
        self._bytes[:] = bytes(MOST)
        if measured := coverage.Coverage.current():
            measured.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        noted = self._found.setdefault(report.nodeid, {"passed": False, "seconds": 0.0})
        noted["seconds"] += report.duration
        if report.when == "call":
            noted["passed"] = report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        noted = self._found.setdefault(nodeid, {})
        noted |= {"mutants": self._reached(), "loaded": self._loaded}

    def _reached(self) -> list[int]:
        return [number for number, byte in enumerate(self._bytes[:]) if byte]

    def pytest_sessionfinish(self) -> None:
        path = FOLDER / f"tests-{WORKER}.json"
        path.write_text(json.dumps(self._found), encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a file's tests beyond so many, every so-manieth."""
    many, every = map(int, os.environ["LLTM_REACHED_MANY"].split(","))
    counted = collections.Counter(item.path for item in items)
    taken: collections.Counter[Path] = collections.Counter()
    kept = []
    for item in items:
        taken[item.path] += 1
        if counted[item.path] <= many or taken[item.path] % every == 0:
            kept.append(item)
    items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    """Only the processes that run tests."""
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Reached())
