"""Platforms and compilers that this machine is not, or lacks: listed as missing, never left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine, this_platform
from torchproof.rows import compilers
from torchproof.rows.plan import expand, place
from torchproof.rows.row_rules import violations

from torchproof import config

PYTHON = Interpreter(Path("python"), "3.11.7")
GCC = CompilerFound("g++", "13.2.0", Path("g++"))
LINUX = Machine(PYTHON, (PYTHON,), (GCC,), GCC, gpu=False)
MATRIX = config.load()
DECLARED = [platform.name for platform in MATRIX.platforms if not platform.proven]
EMULATED = [emulator.platform for emulator in MATRIX.emulators]


@pytest.mark.parametrize("platform", [name for name in DECLARED if name not in EMULATED])
def test_rows_of_another_platform_say_so(platform: str) -> None:
    rows = [
        p for p in place(MATRIX, expand(MATRIX, "nightly"), LINUX) if p.row.platform == platform
    ]
    assert rows
    assert {p.missing for p in rows} == {f"this machine is linux-x86_64, not {platform}"}
    assert all(p.row.id.endswith(platform) for p in rows)


@pytest.mark.parametrize("platform", DECLARED)
def test_rows_of_another_platform_run_there(platform: str) -> None:
    there = replace(LINUX, platform=platform)
    rows = place(MATRIX, expand(MATRIX, "nightly"), there)
    assert {p.row.platform for p in rows if not p.missing} == {platform}


def test_an_unknown_platform_is_rejected() -> None:
    text = config.PATH.read_text(encoding="utf-8").replace(
        'platform = ["linux-aarch64"', 'platform = ["linux-riscv64"'
    )
    (found,) = violations(config.loads(text))
    assert found.rule == "names"
    assert "platform 'linux-riscv64' is none of" in found.message


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "linux-x86_64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Darwin", "arm64", "macos-arm64"),
        ("Windows", "AMD64", "windows-x86_64"),
    ],
)
def test_platforms_are_named_as_in_the_matrix(
    system: str, machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert this_platform() == name
    assert name in {platform.name for platform in MATRIX.platforms}


def test_the_compilers_a_tier_lacks_are_named_by_their_packages() -> None:
    labels = ["default", "each", "g++-11", "clang++-14", "g++-13"]
    assert compilers.missing(labels, ["g++-13"]) == ["clang-14", "g++-11"]


@pytest.mark.parametrize("any_one", ["default", "each"])
def test_a_tier_that_takes_any_compiler_lacks_one_where_there_is_none(any_one: str) -> None:
    assert compilers.missing({any_one}, []) == ["g++"]
    assert compilers.missing({any_one}, ["clang++-14"]) == []
