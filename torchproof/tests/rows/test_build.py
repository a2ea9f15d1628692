"""What a build sees, and which rows share what it makes."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from torchproof.machine.environments import Environment
from torchproof.machine.inventory import CompilerFound
from torchproof.machine.processes import Processes
from torchproof.rows import history, row, wheel_builder
from torchproof.rows.plan import expand

from torchproof import config

COMPILER = CompilerFound("g++", "12.2.0", Path("/usr/bin/g++"))


def test_a_build_sees_what_its_wheel_is_made_of(tmp_path: Path) -> None:
    made = config.ROOT / "decay" / "lib" / "libdecay.so"
    made.parent.mkdir(exist_ok=True)
    made.touch()
    try:
        shutil.copytree(config.ROOT, tmp_path / "decay", ignore=wheel_builder.left_out)
    finally:
        shutil.rmtree(made.parent)
    found = {path.relative_to(tmp_path / "decay") for path in (tmp_path / "decay").rglob("*")}
    assert {Path("README.md"), Path("csrc/decay.cpp"), Path("decay/_version.py")} <= found
    assert not any(path.parts[0] in {"tests", "recipe"} for path in found)
    assert Path("decay/lib") not in found


def test_a_build_is_spared_links_that_lead_nowhere_and_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_builder, "ROOT", tmp_path)
    source = tmp_path / "decay"
    source.mkdir()
    (source / "decay.cpp").touch()
    (source / "decay.h").symlink_to(source / "decay.cpp")
    (source / "data").symlink_to("/nowhere")
    os.mkfifo(source / "pipe")
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=wheel_builder.left_out)
    copied = {path.name for path in (tmp_path / "copy" / "decay").iterdir()}
    assert copied == {"decay.cpp", "decay.h"}


@pytest.mark.parametrize("any_python", [True, False])
def test_a_wheel_is_of_one_python_unless_it_serves_every_one(
    monkeypatch: pytest.MonkeyPatch, any_python: bool
) -> None:
    project = replace(config.project(), any_python=any_python)
    monkeypatch.setattr(wheel_builder, "project", lambda: project)
    matrix = config.load()
    first = expand(matrix, "pr")[0]
    names = {
        wheel_builder.recipe(matrix, replace(first, python=python), COMPILER).name
        for python in ("3.11", "3.12")
    }
    assert len(names) == (1 if any_python else 2)


def test_a_wheel_is_of_the_variables_that_its_build_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home(binding: str, **stable: str) -> Path:
        build = replace(config.project().build, stable=stable)
        project = replace(config.project(), build=build)
        monkeypatch.setattr(wheel_builder, "project", lambda: project)
        row = replace(expand(matrix, "pr")[0], binding=binding)
        return builder.home(wheel_builder.recipe(matrix, row, COMPILER))

    matrix, builder = config.load(), wheel_builder.Builder(tmp_path, Processes())
    assert home("stable", CXXFLAGS="-O2", CFLAGS="-g") == home(
        "stable", CFLAGS="-g", CXXFLAGS="-O2"
    )
    assert home("stable", CXXFLAGS="-O2") != home("stable", CXXFLAGS="-O3")
    assert home("native", CXXFLAGS="-O2") == home("native", CXXFLAGS="-O3")


@pytest.mark.parametrize("name", ["CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS"])
def test_a_wheel_is_of_the_flags_that_the_shell_gives_its_build(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def made_with(flags: str) -> wheel_builder.Recipe:
        monkeypatch.setenv(name, flags)
        return wheel_builder.recipe(matrix, row, COMPILER)

    matrix = config.load()
    row = expand(matrix, "pr")[0]
    monkeypatch.delenv(name, raising=False)
    without = wheel_builder.recipe(matrix, row, COMPILER)
    assert made_with("") == without
    assert made_with("-O0") == made_with("-O0")
    assert len({without, made_with("-O0"), made_with("-O3")}) == 3


@pytest.mark.parametrize("name", ["setup.py", "setup.cfg", "CMakeLists.txt", "meson.build"])
def test_a_wheel_is_of_the_build_files_that_sources_do_not_name(name: str) -> None:
    """A build finds them in its copy of the sources all the same."""

    def made_with(text: str) -> wheel_builder.Recipe:
        file.write_text(text, encoding="utf-8")
        return wheel_builder.recipe(matrix, row, COMPILER)

    matrix, file = config.load(), config.ROOT / name
    row = expand(matrix, "pr")[0]
    without = wheel_builder.recipe(matrix, row, COMPILER)
    try:
        assert made_with("one") == made_with("one")
        assert len({without, made_with("one"), made_with("two")}) == 3
    finally:
        file.unlink()
    assert wheel_builder.recipe(matrix, row, COMPILER) == without


def test_a_build_imports_nothing_that_the_shell_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another torch, beside which the wheel would be compiled."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    environment = Environment(tmp_path / "environment", "2.13.0", "3.11.7", "cpu")
    environment.program.parent.mkdir(parents=True)
    environment.program.write_text(
        '#!/bin/sh\ntest -z "$PYTHONPATH" && touch "$7/decay-1.0-py3-none-any.whl"\n'
    )
    environment.program.chmod(0o755)
    matrix = config.load()
    recipe = wheel_builder.recipe(matrix, expand(matrix, "pr")[0], COMPILER)
    builder = wheel_builder.Builder(tmp_path / "artifacts", Processes())
    made = builder.build(recipe, COMPILER, environment, tmp_path / "build.log")
    assert made.wheel == "decay-1.0-py3-none-any.whl"


@pytest.mark.parametrize(("any_python", "python"), [(True, "none"), (False, None)])
def test_a_wheel_that_does_not_serve_every_python_is_checked_against_its_own_tag(
    monkeypatch: pytest.MonkeyPatch, any_python: bool, python: str | None
) -> None:
    project = replace(config.project(), any_python=any_python)
    monkeypatch.setattr(row, "project", lambda: project)
    matrix = config.load()
    assert row.policy_of(matrix, expand(matrix, "pr")[0], "2.13.0").python == python


@pytest.mark.parametrize(
    ("requires", "prints", "version"),
    [
        ("setuptools_scm[toml]>=8", "echo 1.2.4.dev1+g9add57a", "1.2.4.dev1+g9add57a"),
        ("hatch-vcs", "echo a warning; echo 1.2.4", "1.2.4"),
        ("setuptools-scm", "exit 1", None),
        ("setuptools>=77", "echo 1.2.4", None),
    ],
)
def test_a_build_is_told_the_version_that_is_in_gits_history(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    requires: str,
    prints: str,
    version: str | None,
) -> None:
    """Its copy of the sources has none."""
    environment = Environment(tmp_path, "2.13.0", "3.11.7", "cpu")
    environment.program.parent.mkdir()
    asked = f'test "$*" = "-m setuptools_scm" && test "$PWD" = "{config.ROOT}" || exit 2'
    environment.program.write_text(f"#!/bin/sh\n{asked}\n{prints}\n")
    environment.program.chmod(0o755)
    monkeypatch.setattr(history, "build_requirements", lambda: [Requirement(requires)])
    told = {"SETUPTOOLS_SCM_PRETEND_VERSION": version} if version else {}
    assert history.version(environment) == told
