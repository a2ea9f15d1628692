"""How the tests of the examples run them: as a reader would, and as modules."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# The machine's threads belong to the other processes of the suite.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


class Start(Protocol):
    """Starts ``python [THROUGH] examples/NAME.py ARGUMENTS`` and does not wait for it."""

    def __call__(
        self, name: str, *arguments: str, through: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]: ...


class Run(Protocol):
    """Runs an example to its end and returns what it printed."""

    def __call__(
        self, name: str, *arguments: str, through: tuple[str, ...] = (), fails: bool = False
    ) -> str: ...


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A starter in an empty folder."""

    def start_example(
        name: str, *arguments: str, through: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *through, EXAMPLES / f"{name}.py", *arguments],
            cwd=tmp_path,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    return start_example


@pytest.fixture
def run(start: Start) -> Run:
    """A runner in an empty folder; the example must succeed, or fail where that is expected."""

    def run_example(
        name: str, *arguments: str, through: tuple[str, ...] = (), fails: bool = False
    ) -> str:
        process = start(name, *arguments, through=through)
        output, _ = process.communicate()
        assert (process.returncode != 0) == fails, output
        return output

    return run_example


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> object:
    """Imports an example as a module, so that a test can reach its parts."""

    def load_example(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(EXAMPLES)
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load_example
