"""A pytest plugin that writes coverage.py's data when the tests end.

xdist kills a worker that takes too long to end, and coverage.py writes when the interpreter ends.
"""

from __future__ import annotations

import coverage


def pytest_sessionfinish() -> None:
    if measured := coverage.Coverage.current():
        measured.save()
