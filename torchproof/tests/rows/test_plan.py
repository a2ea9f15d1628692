"""Lines become rows, rows find their place on a machine, and what is missing is reported."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine, Nvcc
from torchproof.machine.sample_processors import AMX
from torchproof.rows import plan
from torchproof.rows.plan import Placed, expand, place, select

from torchproof import config

PYTHON = Interpreter(Path("/usr/bin/python3.11"), "3.11.7")
OTHER = Interpreter(Path("/usr/bin/python3.12"), "3.12.1")
GCC = CompilerFound("g++", "12.2.0", Path("/usr/bin/g++"))
OLD = CompilerFound("g++", "9.4.0", Path("/usr/bin/g++-9"))
CLANG = CompilerFound("clang++", "14.0.6", Path("/usr/bin/clang++-14"))
MACHINE = Machine(PYTHON, (OTHER, PYTHON), (GCC, OLD, CLANG), GCC, gpu=False, processor=AMX)


def test_local_takes_what_the_machine_has() -> None:
    matrix = config.load()
    placed = place(matrix, expand(matrix, "local"), MACHINE)
    assert {(p.row.torch, p.row.python) for p in placed} == {(matrix.headers.version, "3.11")}
    assert {(p.row.binding, p.row.compiler) for p in placed} == {
        (binding, compiler)
        for binding in ("stable", "native")
        for compiler in ("g++-12", "clang++-14")
    }
    assert not any(p.missing for p in placed)


@pytest.mark.parametrize("suite", ["full", "core"])
def test_each_row_comes_once_with_the_largest_suite_of_its_lines(suite: str) -> None:
    matrix = config.load()
    own = [spec for spec in matrix.rows if spec.tier == "local"]
    again = (dataclasses.replace(spec, suite=suite) for spec in own)
    doubled = dataclasses.replace(matrix, rows=(*again, *own))
    placed = place(doubled, expand(doubled, "local"), MACHINE)
    assert len({p.row.id for p in placed}) == len(placed)
    before = {p.row.id: p.row.suite for p in place(matrix, expand(matrix, "local"), MACHINE)}
    assert {p.row.id: p.row.suite for p in placed} == {
        name: "full" if suite == "full" else known for name, known in before.items()
    }


def test_the_nightly_tier_runs_the_full_suite_on_every_torch_and_python_of_the_table() -> None:
    matrix = config.load()
    suites = {
        (row.torch, row.python): row.suite
        for row in expand(matrix, "nightly")
        if (row.binding, row.compiler, row.cuda, row.packages, row.platform, row.level, row.system)
        == ("stable", "default", "cpu", "stubs", config.HOME, config.HOST, config.HOST)
    }
    assert suites == {
        (release.version, python): "full"
        for release in matrix.supporting("stable")
        for python in release.every_python
    }


def test_a_missing_program_is_said_and_the_row_stays() -> None:
    matrix = config.load()
    bare = Machine(PYTHON, (PYTHON,), (), None, gpu=False)
    placed = place(matrix, expand(matrix, "pr"), bare)
    assert all(
        "g++" in p.missing or "clang++" in p.missing or "CPython" in p.missing for p in placed
    )
    fetched = "no CPython 3.12 on this machine: `torchproof interpreters 3.12` fetches one"
    installed = "`torchproof compilers --tier pr` installs what is missing"
    assert fetched in {p.missing for p in placed}
    assert any("no g++" in p.missing and p.missing.endswith(installed) for p in placed)


def newest_python(any_python: bool, *older: Interpreter) -> tuple[Interpreter, Placed]:
    """A row of the stable wheel whose CPython has no wheel of the torch that it is built on."""
    matrix = config.load()
    name = next(p for p in matrix.release("2.15").pythons if p not in matrix.headers.every_python)
    python = Interpreter(Path("/usr/bin/python"), f"{name}.0")
    machine = Machine(python, older, (GCC,), GCC, gpu=False)
    with pytest.MonkeyPatch.context() as patch:
        project = dataclasses.replace(config.project(), any_python=any_python)
        patch.setattr(plan, "project", lambda: project)
        placed = place(matrix, expand(matrix, "nightly"), machine)
    (row,) = select(placed, f"python={name},binding=stable,cuda=cpu")
    return python, row


def test_a_wheel_is_built_on_a_python_that_has_the_torch_it_is_built_on() -> None:
    python, placed = newest_python(True, OTHER, PYTHON)
    assert (placed.python, placed.build_python, placed.missing) == (python, OTHER, "")


@pytest.mark.parametrize(
    ("any_python", "reason"),
    [
        (False, "which the wheel is built on, has no wheel for CPython 3.15"),
        (True, "for CPython 3.15, nor for another on this machine: `torchproof interpreters 3."),
    ],
)
def test_a_wheel_that_no_python_here_can_build_is_told(any_python: bool, reason: str) -> None:
    older = () if any_python else (OTHER, PYTHON)
    assert reason in newest_python(any_python, *older)[1].missing


@pytest.mark.parametrize(
    ("release", "missing"),
    [(None, True), ("12.8", True), ("13.0", False)],
    ids=["no nvcc", "another", "its own"],
)
def test_a_cuda_row_needs_nvcc_of_its_release_and_no_gpu(
    release: str | None, missing: bool
) -> None:
    matrix = config.load()
    nvcc = release and Nvcc(release, f"{release}.88", Path("/usr/local/cuda"))
    machine = dataclasses.replace(MACHINE, nvcc=nvcc)
    found = [p for p in place(matrix, expand(matrix, "nightly"), machine) if p.row.cuda == "13.0"]
    assert {p.row.binding for p in found} == {"stable", "native"}
    # Beside a torch of either CUDA major.
    assert {matrix.release(p.row.torch).cuda for p in found} == {"12.8", "13.0"}
    reason = "no nvcc of CUDA 13.0 on this machine"
    assert {p.missing for p in found} == {reason if missing else ""}


def test_pr_holds_what_the_project_promises() -> None:
    matrix = config.load()
    rows = expand(matrix, "pr")
    assert len({row.torch for row in rows}) >= 5
    assert len({row.python for row in rows}) >= 4
    assert len({row.compiler for row in rows}) >= 3
    assert {row.binding for row in rows} == {"stable", "native"}


def test_an_including_tier_holds_all_rows_of_the_other() -> None:
    matrix = config.load()
    assert {row.id for row in expand(matrix, "pr")} <= {row.id for row in expand(matrix, "nightly")}


def test_all_leaves_out_only_torches_without_a_wheel() -> None:
    matrix = config.load()
    found = {row.torch for row in expand(matrix, "nightly") if row.python == "3.10"}
    assert found == {r.version for r in matrix.supporting("stable") if "3.10" in r.pythons}


def test_select_keeps_what_is_asked_for() -> None:
    matrix = config.load()
    placed = place(matrix, expand(matrix, "nightly"), MACHINE)
    kept = select(placed, "torch=2.15,python=3.12,python=3.11,binding=stable")
    assert {p.row.torch for p in kept} == {matrix.release("2.15").version}
    assert {p.row.python for p in kept} == {"3.11", "3.12"}


@pytest.mark.parametrize("choice", ["torch", "color=red", "torch=", "torch=1.0"])
def test_a_wrong_select_is_told(choice: str) -> None:
    matrix = config.load()
    with pytest.raises(config.ConfigError, match="--select"):
        select(place(matrix, expand(matrix, "pr"), MACHINE), choice)


def test_an_unknown_tier_is_told() -> None:
    with pytest.raises(config.ConfigError, match="no tier 'weekly'; the tiers are local, pr"):
        expand(config.load(), "weekly")


def test_a_row_id_is_a_file_name() -> None:
    for row in expand(config.load(), "nightly"):
        assert not set(row.id) & set('/\\ :"')
        assert json.dumps(row.id)
