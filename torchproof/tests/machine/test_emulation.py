"""A row of another platform or processor runs on what QEMU emulates here, and says so."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from torchproof.machine import emulation, interpreters, inventory
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import CompilerFound, Emulation, Interpreter, Machine
from torchproof.rows.plan import Placed, expand, place
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, begin

from torchproof import config

MATRIX = config.load()
GCC = CompilerFound("g++", "13.2.0", Path("g++"))
HOST = Interpreter(Path("python3.11"), "3.11.7")
HERE = Machine(HOST, (HOST,), (GCC,), GCC, gpu=False)
ARM, X86 = "linux-aarch64", "linux-x86_64"
CROSS = CompilerFound("g++", "12.2.0", Path("cross", "g++"))


def emulated(platform: str, compiler: CompilerFound) -> Machine:
    run = Emulation(platform, "qemu-user 10.0", Path("run"))
    python = Interpreter(Path(platform, "python3.11"), "3.11.2", emulation=run)
    return Machine(python, (python,), (compiler,), compiler, gpu=False, platform=platform)


BOTH = replace(HERE, emulated=(emulated(ARM, CROSS), emulated(X86, GCC)))


def placed(machine: Machine, **wanted: str) -> list[Placed]:
    rows = (r for r in expand(MATRIX, "nightly") if r.python == "3.11" and r.binding == "stable")
    kept = [r for r in rows if all(getattr(r, name) == value for name, value in wanted.items())]
    return [p for p in place(MATRIX, kept, machine) if p.row.torch == MATRIX.headers.version]


@pytest.mark.parametrize("wanted", [{"platform": ARM}, {"level": "nehalem"}])
def test_a_run_fetches_what_nothing_emulates_yet(wanted: dict[str, str]) -> None:
    (row,) = placed(HERE, **wanted)
    assert row.fetchable
    assert f"`torchproof interpreters 3.11 --emulate {row.row.platform}`" in row.missing


def test_the_running_python_is_that_of_this_machine_where_it_is_emulated() -> None:
    rows = [replace(r, python="running") for r in expand(MATRIX, "nightly") if r.platform == ARM]
    (missing,) = place(MATRIX, rows[:1], HERE)
    assert "`torchproof interpreters 3.11 --emulate" in missing.missing
    (found,) = place(MATRIX, rows[:1], BOTH)
    assert (found.row.python, found.python) == ("3.11", BOTH.emulated[0].running)


def test_a_row_of_another_platform_gets_its_python_and_compiler() -> None:
    (row,) = placed(BOTH, platform=ARM)
    assert (row.python, row.compiler) == (BOTH.emulated[0].running, CROSS)
    assert (row.row.compiler, row.missing) == ("g++-12", "")


def test_an_emulated_processor_needs_nothing_of_the_real_one() -> None:
    bare = replace(BOTH, processor=replace(BOTH.processor, instruction_sets=()))
    (row,) = placed(bare, level="nehalem")
    assert (row.python, row.compiler, row.missing) == (BOTH.emulated[1].running, GCC, "")


def test_every_other_row_gets_the_machines_own_python() -> None:
    plain = placed(BOTH, platform=X86, level="host", system="host", cuda="cpu")
    assert {row.python for row in plain} == {HOST}


def test_nothing_is_emulated_on_a_machine_of_the_platform() -> None:
    (row,) = placed(replace(BOTH, platform=ARM), platform=ARM)
    assert row.python == HOST


def test_a_platform_without_an_emulator_is_not_fetched() -> None:
    rows = placed(BOTH, platform="macos-arm64")
    assert {(row.fetchable, row.missing) for row in rows} == {
        (False, "this machine is linux-x86_64, not macos-arm64")
    }
    with pytest.raises(NotOffered, match="what can be emulated is linux-x86_64, linux-aarch64"):
        emulation.of(MATRIX, "macos-arm64")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (PASSED, "passed, emulated by qemu-user 10.0"),
        (FAILED, "failed, emulated by qemu-user 10.0"),
        (NOT_RUN, "not run"),
    ],
)
def test_an_outcome_names_the_emulator(status: str, outcome: str) -> None:
    (row,) = placed(BOTH, platform=ARM)
    result = replace(begin(row.row), status=status, emulator="qemu-user 10.0")
    assert result.outcome == outcome


def test_only_a_whole_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prefix = inventory.cache_folder() / "emulated" / ARM / "3.11"
    prefix.mkdir(parents=True)
    assert emulation.find(MATRIX, HERE).emulated == ()
    (prefix / "version").write_text("3.11.2\nqemu-user 10.0.13\n", encoding="utf-8")
    (found,) = emulation.find(MATRIX, HERE).emulated
    python = found.python("3.11")
    assert python is not None
    assert python.emulation is not None
    assert (found.platform, python.version) == (ARM, "3.11.2")
    assert python.emulation.emulator == "qemu-user 10.0.13"
    assert found.default is None  # the machine's own g++ compiles for another platform
    assert [row.missing for row in placed(replace(HERE, emulated=(found,)), platform=ARM)] == [
        "no g++ on this machine, or one outside the bounds of matrix.toml"
    ]


def test_a_program_of_the_platform_starts_under_the_emulator(tmp_path: Path) -> None:
    folder, run = tmp_path / "a folder" / "bin", tmp_path / "run it"
    folder.mkdir(parents=True)
    run.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    run.chmod(0o755)
    (folder / "tool").write_bytes(emulation.ELF + b"rest")
    (folder / "script").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "link").symlink_to("script")
    emulation.wrap(folder, Emulation(ARM, "qemu-user 10.0", run))
    ended = subprocess.run(
        [folder / "tool", "a", "b c"], capture_output=True, text=True, check=True
    )
    real = folder.with_name("program") / "tool"
    assert ended.stdout == f"{folder / 'tool'}|{real}|a|b c|"
    assert real.read_bytes() == emulation.ELF + b"rest"
    assert (folder / "script").read_text(encoding="utf-8") == "#!/bin/sh\n"
    assert (folder / "link").is_symlink()


CONFIGURE = """#!/bin/sh
for word in "$@"; do case $word in --prefix=*) prefix=${word#--prefix=};; esac; done
printf 'all:\\n\\ttrue\\naltinstall:\\n\\tmkdir -p %s/bin\\n' "$prefix" > Makefile
printf '\\techo %s > %s/bin/python3.99t\\n' "$*" "$prefix" >> Makefile
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Sources of a CPython 3.99 that needs no time to build."""
    folder = tmp_path / "cpython"
    (folder / "Include").mkdir(parents=True)
    header = folder / "Include" / "patchlevel.h"
    header.write_text('#define PY_VERSION  "3.99.1+"\n', encoding="utf-8")
    (folder / "configure").write_text(CONFIGURE, encoding="utf-8")
    (folder / "configure").chmod(0o755)
    return folder


def test_a_free_threaded_cpython_is_built_from_its_sources(tree: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = interpreters.build("3.99t", tree, tmp_path / "prefix", scratch)
    assert program == tmp_path / "prefix" / "bin" / "python3.99t"
    assert "--disable-gil" in program.read_text(encoding="utf-8")


def test_the_sources_of_another_cpython_are_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(NotOffered, match=r"holds CPython 3\.99\.1\+, and not the sources of 3\.98"):
        interpreters.build("3.98", tree, tmp_path / "prefix", tmp_path)
    with pytest.raises(NotOffered, match="holds no CPython, and not"):
        interpreters.build("3.98", tmp_path, tmp_path / "prefix", tmp_path)
