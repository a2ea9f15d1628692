"""An environment whose torch has one function, and what installs wheels in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torchproof.grid.prober import Prober
from torchproof.machine.environments import Environment
from torchproof.machine.processes import Processes
from wheels import PRESENT

if TYPE_CHECKING:
    from conftest import Toolchain

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
        return [sys.executable, "-m", "zipfile", "-e", what, target]


@pytest.fixture
def prober(tmp_path: Path) -> Prober:
    return Prober(Processes(), Unzip({}), tmp_path)


@pytest.fixture
def environment(tmp_path: Path, toolchain: Toolchain) -> Environment:
    """This interpreter, beside a torch that has one function."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    toolchain.stub(f"{site.relative_to(tmp_path)}/torch/lib/libtorch_cpu.so", [PRESENT])
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    (site / "torch" / "__init__.py").write_text(TORCH)
    program = tmp_path / "env" / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return Environment(tmp_path / "env", "2.13.0", "3.11.7", "cpu")
