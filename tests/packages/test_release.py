"""What lltm's own files say of its version, its torch and its library, beside each other."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from torchproof.release import version

from build_support import library, variant
from lltm import _compile, _library
from torchproof import config

if TYPE_CHECKING:
    from pathlib import Path


def test_every_place_names_the_version_of_the_source() -> None:
    assert version.disagreements() == []


def test_the_installed_wheel_says_the_version_of_the_source(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-P", "-m", "lltm", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(completed.stdout)
    versions = {
        "lltm.__version__": facts["lltm"],
        "lib/build.json": facts["library"]["version"],
        "the wheel's metadata": importlib.metadata.version("lltm"),
    }
    assert versions == dict.fromkeys(versions, config.version())


PYPROJECT = config.read_toml(config.ROOT / "pyproject.toml")


def test_the_package_asks_for_the_torch_of_the_matrix() -> None:
    matrix = config.load()
    wanted = {r.name: r.specifier for r in map(Requirement, PYPROJECT["build-system"]["requires"])}
    installed = [r.version for r in matrix.supporting("stable") if r.version in wanted["torch"]]
    assert installed[-1] == matrix.headers.version, "an isolated build compiles on other headers"
    assert matrix.stable.target == variant.TORCH_TARGET
    assert matrix.stable.target == ".".join(map(str, _compile.STABLE_SINCE))


def test_the_build_names_the_library_as_the_package_looks_for_it() -> None:
    assert library.LIBRARIES == _library.NAMES
    assert library.CELLS_LIBRARIES == _library.CELLS_NAMES
    assert library.CUDA_LIBRARY == _library.CUDA_NAME


PREPARE = """
import sys
sys.modules["torch"] = None  # importing it fails
from setuptools import build_meta
print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))
"""


def test_the_metadata_is_prepared_without_torch(tmp_path: Path) -> None:
    for name in (*config.project().sources, "LICENSE", "MANIFEST.in", "README.md"):
        source = config.ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, tmp_path / name)
    (tmp_path / "made").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, "made"],
        cwd=tmp_path,
        env={**os.environ, "LLTM_BINDING": "native"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (metadata,) = tmp_path.glob("made/*.dist-info/METADATA")
    torch = config.series(importlib.metadata.version("torch"))
    lines = metadata.read_text(encoding="utf-8").splitlines()
    assert f"Version: {config.version()}+torch{torch}" in lines
    # Of any other torch its library is refused.
    assert [line for line in lines if line.startswith("Requires-Dist: ")] == [
        f"Requires-Dist: torch=={torch}.*"
    ]
