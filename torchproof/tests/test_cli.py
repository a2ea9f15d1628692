"""One program has every command, each with its help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torchproof import cli, config

if TYPE_CHECKING:
    pass


def test_one_program_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(f"  {name} " in usage for name in ("run", "check", "audit", "grid", "crossload"))
    assert cli.main(["gird"]) == 2
    assert "there is no command 'gird'" in capsys.readouterr().err
    for name in ("interpreters", "compilers", "lock", "vulnerabilities"):
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, "--help"])
        assert f"usage: torchproof {name}" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("torchproof 0.")
    assert cli.main(["check"]) == 0
    assert cli.main(["--check"]) == 0
    assert cli.main(["audit", "--rules"]) == 0


@pytest.mark.parametrize(
    ("name", "same"),
    [
        *((name, f"torchproof run --{name}") for name in ("list", "check", "report")),
        ("expand", "torchproof run --list --json"),
        ("crossload", "torchproof grid --built"),
    ],
)
def test_a_command_that_is_another_with_options_has_a_help_of_its_own(
    name: str, same: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: torchproof {name} [OPTION ...]\n")
    assert f"`{same}`" in printed
    assert "--json" in printed


def test_a_page_that_is_not_there_is_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("playwright", reason="not run: playwright is not installed")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["page", "misspelt.html"])
    assert "error: misspelt.html is not there; name " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("audit", "every file keeps every rule"),
        ("grid", "every cell was tried and came as predicted"),
        ("run", "nothing failed"),
    ],
)
def test_the_help_of_a_command_has_its_exit_codes(
    name: str, zero: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert f"Exit codes: 0 {zero}; 1 " in words


@pytest.mark.parametrize(("name", "needed"), [("init", "copier"), ("release", "build")])
def test_a_command_names_the_extra_that_it_lacks(name: str, needed: str) -> None:
    program = f"import sys; sys.modules[{needed!r}] = None; from torchproof import cli; "
    command = [sys.executable, "-c", f"{program} sys.exit(cli.main([{name!r}, '--help']))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reason = f"error: {needed} is not installed: pip install 'torchproof[{name}]'\n"
    assert (done.returncode, done.stderr) == (2, reason)


def test_crossload_without_a_project_installs_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchproof", "crossload"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (done.stdout + done.stderr).startswith(f"error: no matrix.toml in {tmp_path} or above")
    assert [*tmp_path.iterdir()] == []


NO_HOME = """
import os, pwd, sys
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
os.environ.pop("HOME", None)
from torchproof import cli
sys.exit(cli.main(["list"]))
"""
"""A container that runs as a user whom nothing there knows."""


@pytest.mark.parametrize("cache", ["", "cache"])
def test_a_user_without_a_home_directory_is_one_sentence(cache: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_HOME],
        cwd=config.ROOT,
        env={**os.environ, "XDG_CACHE_HOME": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    out = " ".join((done.stdout + done.stderr).split())
    assert out.startswith("error: HOME is not set, and this user has no home directory: set HOME")
