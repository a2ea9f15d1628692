"""CPythons with and without a GIL are told apart, found, and fetched from packages."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from torchproof.conda.targets import prefix_of
from torchproof.config import number, series
from torchproof.machine import debian, interpreters
from torchproof.machine.environments import Environment, torch_requirements
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine, find_pythons
from torchproof.rows.plan import expand, place, select
from torchproof.rows.row_rules import violations

from torchproof import config

PLAIN = Interpreter(Path("python3.14"), "3.14.10")
FREE = Interpreter(Path("python3.14t"), "3.14.7t")
GCC = CompilerFound("g++", "13.2.0", Path("g++"))
MATRIX = config.load()
PRETENDER = """#!{python}
import platform, sys, sysconfig
platform.python_version = lambda: "3.99.7"
sysconfig.get_config_var = {{"Py_GIL_DISABLED": {freethreaded}}}.get
exec(sys.argv[-1])
"""


def test_a_free_threaded_series_is_one_of_its_own() -> None:
    assert series("3.14.7t") == "3.14t"
    assert number("3.14") < number("3.14t") < number("3.15")


@pytest.mark.parametrize(("name", "python"), [("3.14", PLAIN), ("3.14t", FREE), ("3.13t", None)])
def test_a_row_gets_the_python_it_names(name: str, python: Interpreter | None) -> None:
    for pythons in ((PLAIN, FREE), (FREE, PLAIN)):
        assert Machine(PLAIN, pythons, (), None, gpu=False).python(name) == python


@pytest.mark.parametrize("name", ["3.14t", "3.15"])
def test_its_rows_are_selected_by_name(name: str) -> None:
    machine = Machine(PLAIN, (PLAIN,), (), None, gpu=False)
    chosen = select(place(MATRIX, expand(MATRIX, "nightly"), machine), f"python={name}")
    assert {placed.row.python for placed in chosen} == {name}
    assert {placed.missing.partition(":")[0] for placed in chosen} == {
        f"no CPython {name} on this machine"
    }


def test_a_row_on_another_system_gets_its_python_and_no_other() -> None:
    here, there = replace(PLAIN, version="3.11.7"), Interpreter(Path("p"), "3.11.2", "debian-11")
    (row,) = (row for row in expand(MATRIX, "nightly") if row.system == "debian-11")
    for others, found in (((), None), ((there,), there)):
        machine = Machine(here, (here,), (GCC,), GCC, gpu=False, of_systems=others)
        (placed,) = place(MATRIX, [row], machine)
        assert (placed.python, bool(placed.missing)) == (found, found is None)
        assert machine.python("3.11") == here


def test_a_system_that_is_not_in_the_file_is_refused() -> None:
    text = config.PATH.read_text(encoding="utf-8").replace('system = "debian', 'system = "devuan')
    (found,) = violations(config.loads(text))
    assert "system 'devuan-11' is none of debian-11, host" in found.message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "debian-1", "--prefix", "."], "there is no system 'debian-1' in matrix.toml"),
        (["--on", "debian-11", "--prefix", "."], "not made: . has no bin/python3.*; name the"),
    ],
)
def test_what_cannot_be_put_on_a_system_is_told(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interpreters.main(arguments) != 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["3.11", "--prefix", "P", "--source", "S"]])
def test_a_system_gets_one_prefix_or_one_source_tree(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        interpreters.main(["--on", "debian-11", *more])
    assert "--on takes either --prefix PREFIX, or a series and" in capsys.readouterr().err


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_one_that_does_not_start_on_a_system_is_not_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "path" / "patchelf", "exit 0")
    program(tmp_path / "prefix" / "bin" / "python3.11", "echo GLIBC_2.34 not found >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("torchproof.machine.debian.unpack", lambda *_: tmp_path / "unpacked")
    assert interpreters.main(["--on", "debian-11", "--prefix", str(tmp_path / "prefix")]) == 1
    assert "not made: " in (out := capsys.readouterr().out)
    assert "python3.11 failed: GLIBC_2.34 not found" in out
    assert not list((tmp_path / "cache").rglob("python3.11"))


@pytest.mark.parametrize(
    "arguments",
    [["--on", "debian-11", "--prefix", "."], ["3.11", "--on", "debian-11", "--source", "."]],
)
def test_what_is_on_a_system_stays_there_when_a_command_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    present = program(tmp_path / "torchproof/systems/debian-11/bin/python3.12", "exit 0")
    assert interpreters.main(arguments) == 1
    assert present.is_file()


def test_the_earlier_cpython_comes_back_after_a_build_that_failed_or_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "tree" / "Include" / "patchlevel.h"
    header.parent.mkdir(parents=True)
    header.write_text('#define PY_VERSION "3.14.7"\n', encoding="utf-8")
    target = tmp_path / "3.14"
    half = target / "bin" / "half"
    killed = "kill -9 $PPID $$"
    present = program(target / "bin" / "python3.14", "exit 0")
    for line in ("exit 1", killed, "exit 1"):
        program(tmp_path / "tree" / "configure", f"mkdir -p {half}; {line}")
        process = multiprocessing.get_context("spawn").Process(
            target=interpreters.build, args=("3.14", tmp_path / "tree", target, tmp_path)
        )
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if line == killed else 1)
        assert half.exists() == (line == killed)
    assert present.is_file()


@pytest.mark.parametrize(
    ("held", "words"),
    [("3.14.0rc1", "holds the pre-release 3.14.0rc1"), ("3.13.1", "holds CPython 3.13.1, and not")],
)
def test_sources_of_another_version_are_not_compiled(held: str, words: str, tmp_path: Path) -> None:
    header = tmp_path / "Include" / "patchlevel.h"
    header.parent.mkdir()
    header.write_text(f'#define PY_VERSION "{held}"\n', encoding="utf-8")
    with pytest.raises(debian.NotOffered, match=words):
        interpreters.build("3.14t", tmp_path, tmp_path / "to", tmp_path)


def test_a_cpython_that_takes_this_machines_headers_is_not_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interpreters.main(["3.11", "--on", "debian-11", "--source", str(tmp_path)]) == 1
    assert "CPython 3.11 compiles its modules against this machine's" in (
        out := capsys.readouterr().out
    )
    assert "3.12 is the oldest" in out


@pytest.mark.parametrize("name", ["3.14", "3.14t"])
def test_it_is_compiled_as_named_and_against_the_root_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "tree" / "Include" / "patchlevel.h"
    header.parent.mkdir(parents=True)
    header.write_text('#define PY_VERSION "3.14.7"\n', encoding="utf-8")
    program(tmp_path / "tree" / "configure", 'printf "%s\\n" "$@" > configured')
    program(tmp_path / "path" / "make", 'echo "for ${_PYTHON_HOST_PLATFORM-this}" > made')
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    root = tmp_path / "root"
    made = interpreters.build(name, tmp_path / "tree", tmp_path / "to", tmp_path, root)
    assert made == tmp_path / "to" / "bin" / f"python{name}"
    configured = (tmp_path / "configured").read_text(encoding="utf-8").splitlines()
    assert f"--prefix={tmp_path / 'to'}" in configured
    assert ("--disable-gil" in configured) == name.endswith("t")
    # CPython's build reads it: the modules are not for this machine, so none is imported.
    made_for = (tmp_path / "made").read_text(encoding="utf-8").strip()
    assert made_for == f"for {sysconfig.get_platform()}"
    assert links_with(next(x for x in configured if x.startswith("CC=")).split("=", 1)[1], root)


def links_with(compiler: str, root: Path) -> bool:
    """Whether a compiler takes the C library of `root`, and not its own machine's."""
    folder = root / "usr" / "lib" / interpreters.of_this_machine().triplet
    folder.mkdir(parents=True)
    source, user = root / "planted.c", root / "user.c"
    source.write_text("int only_there(void) { return 1; }\n", encoding="utf-8")
    user.write_text("int only_there(void); int f(void) { return only_there(); }\n", "utf-8")
    library = ["gcc", "-shared", "-nostdlib", str(source), "-o", str(folder / "libc.so")]
    subprocess.run(library, check=True)
    using = [*compiler.split(), "-shared", "-nostartfiles", "-Wl,--no-undefined", str(user)]
    return not subprocess.run([*using, "-o", str(root / "out.so")], check=False).returncode


def test_a_failed_program_is_named_with_its_first_error(tmp_path: Path) -> None:
    failing = (
        "echo 'a.c:1: error: no b' >&2; echo 'make: *** Waiting for unfinished jobs' >&2; exit 2"
    )
    program(tmp_path / "make", failing)
    with pytest.raises(debian.NotOffered, match=r"make failed: a\.c:1: error: no b$"):
        debian.run(tmp_path / "make")


def test_links_of_unpacked_packages_name_their_own_files(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libz.so.1"
    library.parent.mkdir()
    library.touch()
    link = tmp_path / "usr" / "libz.so"
    link.parent.mkdir()
    link.symlink_to("/lib/libz.so.1")
    debian.relocate_links(tmp_path)
    assert link.resolve() == library.resolve()


def test_its_environment_has_folders_of_its_own(tmp_path: Path) -> None:
    environment = Environment(tmp_path, "2.13.0", FREE.version, "cpu")
    assert environment.site_packages == tmp_path / "lib" / "python3.14t" / "site-packages"


def test_a_marker_knows_no_free_threaded_version() -> None:
    requirement = 'setuptools; python_version == "3.14" and python_full_version == "3.14.7"'
    assert torch_requirements([requirement], FREE.version, nvidia=False) == ["setuptools"]


@pytest.mark.parametrize(("freethreaded", "version"), [(0, "3.99.7"), (1, "3.99.7t")])
def test_what_was_fetched_is_found(
    freethreaded: int, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    program = interpreters.interpreters_folder() / series(version) / "bin" / "python3"
    program.parent.mkdir(parents=True)
    text = PRETENDER.format(python=sys.executable, freethreaded=freethreaded)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    assert Interpreter(program, version) in find_pythons()


@pytest.mark.parametrize(("cache", "usable"), [("cache", False), ("elsewhere", True)])
def test_what_was_fetched_is_no_prefix_for_conda(
    cache: str, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    prefix = tmp_path / "cache" / "torchproof" / "interpreters" / "3.14"
    (prefix / "include" / "python3.14").mkdir(parents=True)
    program = prefix / "python3.14"
    program.write_text(f"#!/bin/sh\necho {prefix}\n", encoding="utf-8")
    program.chmod(0o755)
    found = prefix_of(Interpreter(program, "3.14.10"))
    assert found == (prefix if usable else None)


def test_what_no_package_offers_is_told_with_what_builds_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert interpreters.main(["3.14t"]) == 1
    out = capsys.readouterr().out
    assert "CPython 3.14t: not fetched: there is no apt-get on PATH" in out
    assert "`pyenv install 3.14t` builds it" in out
    assert interpreters.main(["3.14", "--emulate", "linux-riscv"]) == 1
    assert "pyenv" not in capsys.readouterr().out


def test_only_what_is_missing_is_wanted() -> None:
    wanted = interpreters.wanted(MATRIX, (PLAIN, FREE))
    assert "3.15" in wanted
    assert not {"3.14", "3.14t"} & set(wanted)
