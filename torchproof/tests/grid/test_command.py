"""Which wheels and torches the commands try, and what they refuse."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from torchproof.grid import __main__ as command
from torchproof.grid import released, released_page
from torchproof.grid.built import BuiltWheels, bindings
from torchproof.grid.prober import Prober
from torchproof.lock import held
from torchproof.machine.environments import Environment
from torchproof.machine.inventory import CompilerFound, Interpreter
from torchproof.machine.processes import Processes
from wheels import METADATA, PRESENT, USER, make_wheel, torch_of

from torchproof import config, terminal

if TYPE_CHECKING:
    from conftest import Toolchain


@pytest.mark.parametrize("name", ["grid.json", "grid.svg", "grid"])
def test_a_page_has_a_name_apart_from_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["decay.whl", "--write", str(tmp_path / name)])
    assert f"a name that ends in .md, got {tmp_path / name}" in capsys.readouterr().err


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "decay-1-py3-none-any.whl"
    damaged.write_text("no zip")
    empty = tmp_path / "empty-1-py3-none-any.whl"
    with ZipFile(empty, "w") as archive:
        archive.writestr(
            "empty-1.dist-info/METADATA", METADATA.format(name="empty", version="1", more="")
        )
    good = make_wheel(tmp_path, "good", "")
    folder = tmp_path / "folder-1-py3-none-any.whl"
    folder.mkdir()
    plain = tmp_path / "plain-1-py3-none-any.whl"
    with ZipFile(plain, "w") as archive:
        archive.writestr("plain/__init__.py", "")
    bytes_ = tmp_path / "bytes-1-py3-none-any.whl"
    with ZipFile(bytes_, "w") as archive:
        archive.writestr("bytes-1.dist-info/METADATA", b"\xff")
    broken = tmp_path / "broken-1-py3-none-any.whl"
    with ZipFile(broken, "w", ZIP_DEFLATED) as archive:
        archive.writestr(
            "broken-1.dist-info/METADATA", METADATA.format(name="broken", version="1", more="")
        )
    start = 30 + len("broken-1.dist-info/METADATA")
    broken.write_bytes(broken.read_bytes()[:start] + b"\xff" * 9 + broken.read_bytes()[start + 9 :])
    unmet = make_wheel(tmp_path, "unmet", "", "Requires-Dist: torch ><3\n")
    listed = tmp_path / "list.toml"
    listed.write_text("wheels = [\n  { wheel = 'decay==1', smok = '' },\n]\n")
    pipe = tmp_path / "pipe-1-py3-none-any.whl"
    os.mkfifo(pipe)
    misnamed = tmp_path / "decay.whl"
    misnamed.touch()
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# \xff\n")
    for arguments, sentence in (
        ([str(tmp_path / "absent-1-py3-none-any.whl")], "does not exist; name a wheel"),
        ([str(tmp_path / "nosuch.whl")], "nosuch.whl does not exist; name a wheel"),
        (
            [str(tmp_path / f"{'long' * 99}.whl")],
            "cannot be read: File name too long; name a wheel",
        ),
        ([str(tmp_path / "nope.toml")], "nope.toml does not exist; name a list of wheels"),
        ([str(damaged)], "is no wheel: File is not a zip file"),
        ([str(misnamed)], "is no wheel: Invalid wheel filename"),
        ([str(empty)], "holds no package to import"),
        ([str(folder)], "is no regular file; name a wheel"),
        ([str(pipe)], "is no regular file; name a wheel"),
        ([str(plain)], "is no wheel: it holds 0 files *.dist-info/METADATA"),
        ([str(bytes_)], "is no wheel: its METADATA is not UTF-8"),
        ([str(broken)], "is no wheel: Error -3 while decompressing data"),
        ([str(unmet)], "has an invalid Requires-Dist: Expected semicolon"),
        ([str(good), "--torch", "1.0"], "--torch: '1.0' is none of 2.9, 2.10"),
        ([str(good), "--python", "2.7"], "--python: no CPython 2.7 on this machine"),
        ([str(listed)], "line 2: unknown key 'smok'"),
        ([str(latin)], "latin.toml: not UTF-8 at line 1"),
        ([], "name wheels, or --built"),
        ([str(good), "--built"], "not both"),
    ):
        assert command.main(arguments) == 2
        output = capsys.readouterr().out
        assert output.startswith("error: ")
        assert output.count("\n") == 1
        assert sentence in output


def damaged_wheel(folder: Path, name: str, *others: Path) -> Path:
    """A wheel with a library that begins as one and is none."""
    library = folder / f"{name}.so"
    library.write_bytes(b"\x7fELF" + bytes(99))
    return make_wheel(folder, name, "", "", library, *others)


def test_a_wheel_that_cannot_be_tried_does_not_hide_the_others(
    environment: Environment,
    prober: Prober,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command.GridSession, "environment", lambda *_: environment)
    monkeypatch.setattr(command, "installer", lambda _: prober.installer)
    good_library = toolchain.library(
        "good.so", USER.format(name=PRESENT), str(torch_of(environment))
    )
    absent = tmp_path / "absent-1-py3-none-any.whl"
    no_zip = tmp_path / "no_zip-1-py3-none-any.whl"
    no_zip.write_text("no zip")
    damaged = damaged_wheel(tmp_path, "damaged")
    half = damaged_wheel(tmp_path, "half", good_library)
    good = make_wheel(tmp_path, "good", "")
    page = tmp_path / "page.md"
    wheels = map(str, (absent, no_zip, damaged, half, good))
    assert command.main([*wheels, "--torch", "2.13", "--write", str(page)]) == 2
    lines = capsys.readouterr().out.splitlines()
    for path, sentence in (
        (absent, f"error: {absent} does not exist"),
        (no_zip, f"error: {no_zip} is no wheel: File is not a zip file"),
        (damaged, f"error: {damaged.name}: damaged/damaged.so is no readable shared library"),
        (half, f"error: {half.name}: half/half.so is no readable shared library"),
    ):
        assert sum(line.startswith(sentence) for line in lines) == 1, path
    assert "good-1-py3-none-any in torch 2.13.0: imports" in lines
    assert any(line.startswith("1 cells, 0 not as predicted") for line in lines)
    data = json.loads(page.with_suffix(".json").read_text())
    assert [Path(each["name"]).name for each in data["refused"]] == [
        path.name for path in (absent, no_zip, damaged, half)
    ]
    assert f"- {damaged.name}: " in page.read_text()
    assert released_page.differing(page) == []


def test_a_grid_beside_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both make environments in one folder, and each would take the other's for half-made."""

    def never(_: object) -> None:
        raise AssertionError("wheels were tried")

    monkeypatch.setattr(command.GridSession, "run", never)
    wheel = make_wheel(tmp_path, "decay", "")
    with held(command.BUILD):
        assert command.main([str(wheel)]) == 2
    assert f"another run, process {os.getpid()}, is at work in" in capsys.readouterr().out


def test_a_torch_without_a_wheel_for_the_python_names_those_that_it_has_one_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = Interpreter(Path("/usr/bin/python3.9"), "3.9.18")
    session = command.GridSession(
        SimpleNamespace(python="3.9"),
        config.known(),
        SimpleNamespace(running=old, python=lambda _: old),
        Processes(),
        terminal.console(),
    )
    with pytest.raises(config.ConfigError, match=r"none of 2\.13 has .* CPython 3\.9: .*3\.11"):
        session.releases(["2.13"])
    new = SimpleNamespace(python=lambda _: replace(old, version="3.15.0"))
    newer = replace(session, machine=new)
    assert newer.releases(["2.10", "2.15"]) == [config.known().torch[-1].version]
    assert "torch 2.10.0 has no wheel for CPython 3.15: left out" in capsys.readouterr().out


def test_a_list_names_wheels_and_how_they_are_used(tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text(
        'torch = ["2.10", "2.13"]\n'
        'wheels = [ { wheel = "decay==1", smoke = "decay.half", uses = "decay/_C.so" } ]\n'
        'absent = [ { name = "growth", reason = "nobody has released it" } ]\n'
    )
    found = released.read(listed)
    assert found.torch == ("2.10", "2.13")
    assert [each.reason for each in found.absent] == ["nobody has released it"]
    make_wheel(tmp_path, "decay", "")
    wheel = released.download(found.wheels[0], tmp_path, Processes())
    assert (wheel.name, wheel.package, wheel.smoke) == ("decay==1", "import decay", "decay.half")
    assert wheel.uses == ("decay/_C.so",)


def test_a_wheel_may_be_built_on_a_torch_that_none_is_tried_in(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "decay", "")
    builder = SimpleNamespace(build=lambda *_: SimpleNamespace(path=path))
    compiler = CompilerFound("g++", "12.2.0", Path("/usr/bin/g++"))
    built = BuiltWheels(
        config.load(),
        builder,
        compiler,
        lambda torch: Environment(tmp_path, torch, "3.11.7", "cpu"),
        tmp_path,
    )
    assert [(wheel.name, wheel.built_on) for wheel in built.each([], ["2.11.0"])] == [
        ("stable-torch2.13-g++-12", "2.13.0"),
        ("native-torch2.11-g++-12", "2.11.0"),
    ]


def test_the_projects_own_grid_builds_every_binding_of_its_rows() -> None:
    row = (
        "{{ tier = 'a', torch = 'all', python = 'running', binding = {}, "
        "compiler = 'g++', suite = 'b' }}"
    )
    text = "stable = {{ target = '2.10', headers = '2.13' }}\nrows = [\n{}\n]\n"
    matrix = config.loads(text.format(row.format("['stable', 'native']")))
    assert bindings(matrix) == ("stable", "native")
    with pytest.raises(config.ConfigError, match="no row"):
        bindings(config.loads(text.format("")))
