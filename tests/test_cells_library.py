"""The library of the cells that a wheel carries beside the LLTM, as LLTM_CELLS=1 builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from carried_cells import assert_carries_cells
from installed_copy import InstalledCopy

from build_support import cells, library
from lltm import _library
from lltm._compile import unavailable_reason
from lltm._integrity import Recorded

ROOT = Path(__file__).parents[1]
MOST_BYTES = 2 << 20
BUILD = """
import sys
from setuptools import Distribution
from torch.utils.cpp_extension import BuildExtension
from build_support import library

build = library.Build(Distribution({"ext_modules": [library.cells_library()]}))
build.build_lib, build.build_temp = sys.argv[1:]
build.ensure_finalized()
BuildExtension.run(build)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    command = [sys.executable, "-c", BUILD, str(folder / "lib"), str(folder / "temp")]
    environment = {**os.environ, "LLTM_BINDING": "stable", "LLTM_CELLS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder / "lib" / "lltm" / "lib" / library.CELLS_LIBRARY


@pytest.mark.subprocess
@pytest.mark.skipif(
    unavailable_reason() is not None or _library.build().binding != "stable",
    reason="not run: it is built with a compiler, for the stable binding",
)
def test_the_library_of_the_cells(built: Path, tmp_path: Path) -> None:
    assert built.stat().st_size < MOST_BYTES
    copy = InstalledCopy.make(tmp_path)
    shutil.copy(built, copy.package / "lib")
    copy.describe(
        cells={name: cell.namespace for name, cell in cells.carried().items()},
        libraries={built.name: asdict(Recorded.of(built))},
    )
    assert_carries_cells(copy)

    library_here = copy.package / "lib" / built.name
    library_here.write_bytes(library_here.read_bytes()[:-1])
    done = copy.run("-c", "from lltm import cells; cells.prepare(cells.formulas.LSTM)")
    assert done.returncode == 1
    assert f"{library_here} is damaged" in done.stderr
    assert "reinstall lltm with" in done.stderr
