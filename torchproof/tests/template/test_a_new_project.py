"""A project that `torchproof init` makes with the wheel of torchproof, run as its author would."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from torchproof.template import __main__ as init
from torchproof.template import create


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree's torchproof, built from a copy: setuptools leaves files in a source folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source, own = folder / "source", create.TEMPLATE.parents[2]
    shutil.copytree(own / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(own / name, source)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    run(*build, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_template(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    source = create.TEMPLATE.parents[1]
    files = {path for path in (create.TEMPLATE / "project").rglob("*") if path.is_file()}
    assert {path.relative_to(source).as_posix() for path in files} <= shipped


def test_a_new_projects_matrix_and_tests_pass(wheel: Path, tmp_path: Path) -> None:
    """Takes some two minutes of a core: each session installs torch and compiles the op."""
    folder = tmp_path / "decay"
    requirement = f"torchproof @ {wheel.as_uri()}"
    assert init.main([str(folder), "--torchproof", requirement, "--defaults"]) == 0
    nox = (sys.executable, "-m", "nox", "--session")
    run(*nox, "matrix", cwd=folder)
    (row,) = json.loads((folder / "build" / "matrix" / "report.json").read_text())["rows"]
    assert row["status"] == "passed"
    run(*nox, "tests", "--", "--junitxml", "tests.xml", cwd=folder)
    (suite,) = ElementTree.parse(folder / "tests.xml").getroot()
    counts = {name: int(suite.get(name, -1)) for name in ("tests", "skipped", "failures", "errors")}
    assert counts == {"tests": row["tests"]["passed"], "skipped": 0, "failures": 0, "errors": 0}
    assert counts["tests"] > 0
