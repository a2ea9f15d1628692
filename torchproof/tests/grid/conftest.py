"""An environment whose torch has one function, and what installs wheels in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from wheels import PRESENT

if TYPE_CHECKING:
    from conftest import Toolchain
    from torchproof.grid.prober import Prober
    from torchproof.machine.environments import Environment

# As much of torch as the probe uses.
TORCH = """
import ctypes, os
from types import SimpleNamespace
_own = ctypes.CDLL(os.path.dirname(__file__) + "/lib/libtorch_cpu.so", ctypes.RTLD_GLOBAL)
ops = SimpleNamespace(load_library=ctypes.CDLL)
"""


@dataclass
class Unzip:
    """Installs a wheel by unpacking it, and nothing else."""

    env: dict[str, str]

    def create(self, python: Path, path: Path) -> list[str | Path]:
        raise NotImplementedError

    def install(self, program: Path, *arguments: str) -> list[str | Path]:
        target, what = arguments[1], arguments[-1]
        if not what.endswith(".whl"):
            return ["false"]
        wheel = what.rpartition("file://")[2]  # as of a requirement: name @ file:///path
        return [sys.executable, "-m", "zipfile", "-e", wheel, target]


@pytest.fixture
def prober(tmp_path: Path) -> Prober:
    # torchproof looks for its project when it is imported: conftest.py of tests/ makes that later.
    from torchproof.grid.prober import Prober  # noqa: PLC0415
    from torchproof.machine.processes import Processes  # noqa: PLC0415

    return Prober(Processes(), Unzip({}), tmp_path)


@pytest.fixture
def environment(tmp_path: Path, toolchain: Toolchain) -> Environment:
    """This interpreter, beside a torch that has one function."""
    from torchproof.machine.environments import Environment  # noqa: PLC0415 - as above

    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    toolchain.stub(f"{site.relative_to(tmp_path)}/torch/lib/libtorch_cpu.so", [PRESENT])
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    (site / "torch" / "__init__.py").write_text(TORCH)
    program = tmp_path / "env" / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return Environment(tmp_path / "env", "2.13.0", "3.11.7", "cpu")
