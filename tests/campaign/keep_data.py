"""A pytest plugin that lets what was measured be written when the tests end.

coverage.py and gcov write when a process ends, and xdist kills a worker that takes long to end.
"""

from __future__ import annotations

import coverage
from xdist.workermanage import NodeManager

NodeManager.EXIT_TIMEOUT = 300


def pytest_sessionfinish() -> None:
    if measured := coverage.Coverage.current():
        measured.save()
