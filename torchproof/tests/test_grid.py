"""A wheel in a torch: what was predicted beside what happened, each way it can come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from torchproof.grid import __main__ as command
from torchproof.grid import predict, released, released_page, second
from torchproof.grid.built import BuiltWheels, bindings
from torchproof.grid.crossload import Grid, Line, lines
from torchproof.grid.prober import Prober
from torchproof.grid.table import details, markdown, words
from torchproof.grid.trials import (
    ABORTS,
    FAILS,
    IMPORTS,
    LOADS,
    REFUSES,
    UNSAFE,
    UNSUPPORTED,
    WORKS,
    WRONG,
    GridCell,
    LibraryTrial,
    PackageTrial,
)
from torchproof.grid.wheel_file import GridError, Wheel, read_wheel
from torchproof.lock import held
from torchproof.machine.environments import Environment
from torchproof.machine.inventory import CompilerFound, Interpreter
from torchproof.machine.processes import Processes

from torchproof import cli, config, terminal

if TYPE_CHECKING:
    from conftest import Toolchain

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
# As much of torch as the probe uses.
TORCH = """
import ctypes, os
from types import SimpleNamespace
_own = ctypes.CDLL(os.path.dirname(__file__) + "/lib/libtorch_cpu.so", ctypes.RTLD_GLOBAL)
ops = SimpleNamespace(load_library=ctypes.CDLL)
"""
# A function of torch's stable ABI that it has, and one that it has not.
PRESENT, ABSENT = "aoti_torch_get_dim", "aoti_torch_get_sizes"
USER = 'extern "C" {{ int {name}(); int use() {{ return {name}(); }} }}'
ABORTING = (
    USER.format(name=PRESENT)
    + """
#include <cstdlib>
static int started = (abort(), 0);
"""
)


def make_wheel(folder: Path, name: str, code: str, more: str = "", *libraries: Path) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{name}-1.dist-info/METADATA", METADATA.format(name=name, more=more))
        for library in libraries:
            archive.write(library, f"{name}/{library.name}")
    return path


@dataclass
class Unzip:
    """Installs a wheel by unpacking it, and nothing else."""

    env: dict[str, str]

    def create(self, python: Path, path: Path) -> list[str | Path]:
        raise NotImplementedError

    def install(self, program: Path, *arguments: str) -> list[str | Path]:
        target, what = arguments[1], arguments[-1]
        if not what.endswith(".whl"):
            return ["false"]
        return [sys.executable, "-m", "zipfile", "-e", what, target]


@pytest.fixture
def prober(tmp_path: Path) -> Prober:
    return Prober(Processes(), Unzip({}), tmp_path)


@pytest.fixture
def environment(tmp_path: Path, toolchain: Toolchain) -> Environment:
    """This interpreter, beside a torch that has one function."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    toolchain.stub(f"{site.relative_to(tmp_path)}/torch/lib/libtorch_cpu.so", [PRESENT])
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    (site / "torch" / "__init__.py").write_text(TORCH)
    program = tmp_path / "env" / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return Environment(tmp_path / "env", "2.13.0", "3.11.7", "cpu")


def torch_of(environment: Environment) -> Path:
    return environment.site_packages / "torch" / "lib" / "libtorch_cpu.so"


def try_it(prober: Prober, environment: Environment, path: Path, **how: Any) -> GridCell:
    wheel = replace(read_wheel(path), **how)
    return prober.cell(prober.install(wheel, environment), environment, "2.13.0")


@pytest.mark.parametrize(
    ("code", "outcome", "message"),
    [
        ("", IMPORTS, ""),
        ("print('no end of line', end='')", IMPORTS, ""),
        ("import os; os.write(1, b'gr\\xfc\\xdf {')", IMPORTS, ""),
        ("raise ImportError('undefined symbol: x')", REFUSES, "ImportError: undefined symbol: x"),
        ("raise RuntimeError('made for CUDA 13')", REFUSES, "RuntimeError: made for CUDA 13"),
        ("raise SystemExit(3)", REFUSES, "SystemExit: 3"),
        ("import os; os.abort()", ABORTS, "killed by SIGABRT"),
        ("import os; os._exit(3)", ABORTS, "exit status 3"),
    ],
)
def test_what_a_package_does_when_it_is_imported(
    prober: Prober, environment: Environment, tmp_path: Path, code: str, outcome: str, message: str
) -> None:
    cell = try_it(prober, environment, make_wheel(tmp_path, "decay", code))
    assert cell.libraries == ()
    assert (cell.package.predicted, cell.package.outcome) == (WORKS, outcome)
    assert cell.package.message == message
    assert cell.as_predicted == (outcome == IMPORTS)


def test_the_users_own_program_decides(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    path = make_wheel(tmp_path, "decay", "half = 0.5")
    programs = [f"import decay; assert decay.half == {value}" for value in (0.5, 0.25)]
    found = [try_it(prober, environment, path, smoke=p).package.outcome for p in programs]
    assert found == [WORKS, WRONG]


def test_what_a_package_says_names_no_folder_of_this_machine(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    python = tmp_path / "python" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    environment.program.rename(python)
    environment.program.symlink_to(python)
    says = f"{python.parents[1]}/lib/python3.11/ctypes.py {environment.path}/lib/torch.py"
    wheel = make_wheel(tmp_path, "decay", f"raise OSError({says!r})")
    cell = try_it(prober, environment, wheel)
    assert cell.package.message == "OSError: lib/python3.11/ctypes.py lib/torch.py"


def test_a_library_is_tried_apart_from_the_package(
    prober: Prober, environment: Environment, tmp_path: Path, toolchain: Toolchain
) -> None:
    good, bad, deadly = (
        toolchain.library(name, source, str(torch_of(environment)))
        for name, source in (
            ("good.so", USER.format(name=PRESENT)),
            ("bad.so", USER.format(name=ABSENT)),
            ("deadly.so", ABORTING),
        )
    )
    path = make_wheel(tmp_path, "decay", "", "", good, bad, deadly)
    cell = try_it(prober, environment, path, uses=("decay/good.so",))
    found = {t.name: (t.predicted, t.outcome, t.as_predicted) for t in cell.libraries}
    assert found == {
        "decay/good.so": (LOADS, LOADS, True),
        "decay/bad.so": (FAILS, REFUSES, True),
        "decay/deadly.so": (LOADS, ABORTS, False),
    }
    assert (cell.package.predicted, cell.package.outcome) == (WORKS, IMPORTS)
    assert words(cell) == "imports; 1 of 3 libraries load; not as predicted"
    needing = try_it(prober, environment, path, uses=("decay/*",))
    assert needing.package.predicted == FAILS
    assert "decay/bad.so" in needing.package.reason


def test_the_loaders_program_uses_what_was_loaded(
    prober: Prober, environment: Environment, tmp_path: Path, toolchain: Toolchain
) -> None:
    source = USER.format(name=PRESENT)
    library = toolchain.library("decay.so", source, str(torch_of(environment)))
    path = make_wheel(tmp_path, "decay", "", "", library)
    (trial,) = try_it(prober, environment, path, by_loader="raise ValueError('0.25')").libraries
    assert (trial.outcome, trial.message) == (WRONG, "ValueError: 0.25")


@pytest.mark.parametrize(
    ("declared", "predicted"),
    [
        ("torch", WORKS),
        ("torch>=2.10,<3", WORKS),
        ("torch==2.12.0", UNSUPPORTED),
        ("Torch==2.12.0", UNSUPPORTED),
    ],
)
def test_what_a_wheel_declares_predicts_its_package(
    prober: Prober, environment: Environment, tmp_path: Path, declared: str, predicted: str
) -> None:
    path = make_wheel(tmp_path, "decay", "", f"Requires-Dist: {declared}\n")
    cell = try_it(prober, environment, path)
    assert (cell.package.predicted, cell.package.outcome) == (predicted, IMPORTS)
    assert cell.as_predicted


def test_the_package_of_a_wheel_is_the_one_of_its_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "decay", "")
    with ZipFile(path, "a") as archive:
        archive.writestr("build_tools/__init__.py", "")
    wheel = make_wheel(tmp_path, "odd_name", "").rename(tmp_path / "decay_plus-1-py3-none-any.whl")
    assert read_wheel(path).package == "import decay"
    assert read_wheel(wheel).package == "import odd_name"


def test_another_release_of_cuda_promises_nothing(environment: Environment, tmp_path: Path) -> None:
    version = environment.site_packages / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0'\ncuda = '13.2'\n")
    facts = SimpleNamespace(cuda_releases=("13.0",))
    verdict = SimpleNamespace(outcome=LOADS, reason="every symbol is there")
    report = SimpleNamespace(name="decay/_C.so", facts=facts, verdicts=(verdict,))
    wheel = read_wheel(make_wheel(tmp_path, "decay", ""))
    of_13_0 = predict.package(wheel, environment, {"decay/_C.so": report})
    assert of_13_0 == (UNSUPPORTED, "it was made by CUDA 13.0, this torch by CUDA 13.2")
    facts.cuda_releases = ("13.2",)
    assert predict.package(wheel, environment, {"decay/_C.so": report})[0] == WORKS


def test_what_cannot_be_installed_is_not_run(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    path = make_wheel(tmp_path, "decay", "", "Requires-Dist: torch\nRequires-Dist: absent>=2\n")
    assert read_wheel(path).requires == ("absent>=2",)
    cell = try_it(prober, environment, path)
    assert not cell.run
    assert "cannot be installed: exit status 1" in cell.package.message
    assert not Grid({}, (Line(read_wheel(path), "", (cell,)),)).proven


@pytest.mark.parametrize(
    ("predicted", "outcome", "right"),
    [
        (LOADS, LOADS, True),
        (LOADS, REFUSES, False),
        (LOADS, WRONG, False),
        (LOADS, ABORTS, False),
        (FAILS, REFUSES, True),
        (FAILS, LOADS, False),
        (FAILS, ABORTS, False),
        (UNSAFE, LOADS, True),
        (UNSAFE, WRONG, True),
        (UNSAFE, ABORTS, True),
        (UNSAFE, REFUSES, False),
    ],
)
def test_when_the_prediction_of_a_library_is_right(
    predicted: str, outcome: str, right: bool
) -> None:
    assert LibraryTrial(predicted, "", outcome, "").as_predicted == right


@pytest.mark.parametrize(
    ("predicted", "outcome", "plain", "guarded"),
    [
        (WORKS, WORKS, True, True),
        (WORKS, IMPORTS, True, True),
        (WORKS, REFUSES, False, False),
        (WORKS, WRONG, False, False),
        (WORKS, ABORTS, False, False),
        (FAILS, REFUSES, True, True),
        (FAILS, WRONG, True, False),
        (FAILS, IMPORTS, True, False),
        (FAILS, WORKS, False, False),
        (FAILS, ABORTS, False, False),
        (UNSAFE, REFUSES, True, True),
        (UNSAFE, WORKS, True, False),
        (UNSAFE, ABORTS, True, False),
        (UNSUPPORTED, REFUSES, True, True),
        (UNSUPPORTED, WORKS, True, False),
    ],
)
def test_when_the_prediction_of_a_package_is_right(
    predicted: str, outcome: str, plain: bool, guarded: bool
) -> None:
    trial = PackageTrial(predicted, "", outcome, "ImportError: needs torch 2.10")
    assert trial.as_predicted == plain
    assert replace(trial, guarded=True).as_predicted == guarded


@pytest.mark.parametrize("message", ["OSError: x.so: undefined symbol", "ImportError: two\nlines"])
def test_a_guarded_package_refuses_clearly(message: str) -> None:
    assert not PackageTrial(FAILS, "", REFUSES, message, guarded=True).as_predicted


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
        archive.writestr("empty-1.dist-info/METADATA", METADATA.format(name="empty", more=""))
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
        archive.writestr("broken-1.dist-info/METADATA", METADATA.format(name="broken", more=""))
    start = 30 + len("broken-1.dist-info/METADATA")
    broken.write_bytes(broken.read_bytes()[:start] + b"\xff" * 9 + broken.read_bytes()[start + 9 :])
    unmet = make_wheel(tmp_path, "unmet", "", "Requires-Dist: torch ><3\n")
    listed = tmp_path / "list.toml"
    listed.write_text("wheels = [\n  { wheel = 'decay==1', smok = '' },\n]\n")
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
        ([str(folder)], "cannot be read: Is a directory; name a wheel"),
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


@pytest.mark.parametrize(
    ("content", "system"), [(b"MZ" + bytes(99), "Windows"), (b"\xcf\xfa\xed\xfe", "macOS")]
)
def test_a_wheel_of_another_system_is_no_pure_python(
    environment: Environment, tmp_path: Path, content: bytes, system: str
) -> None:
    library = tmp_path / "op.so"
    library.write_bytes(content)
    wheel = read_wheel(make_wheel(tmp_path, "decay", "", "", library))
    with pytest.raises(GridError, match=f"op.so, a (Mach-O )?library of {system}"):
        predict.libraries(wheel, environment)


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


def test_a_second_opinion_is_of_stable_libraries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = {
        "stable": SimpleNamespace(stable=True, min_torch_version="2.10.0"),
        "native": SimpleNamespace(stable=False, min_torch_version="2.10.0"),
    }
    tool = SimpleNamespace(
        inspect_extension=lambda path: SimpleNamespace(torch=verdicts[path.name])
    )
    monkeypatch.setitem(sys.modules, "torch_abi_audit", tool)
    stable, native = tmp_path / "stable", tmp_path / "native"
    for path in (stable, native):
        path.touch()
    assert second.opinion(stable, "2.9.1+cpu") == FAILS
    assert second.opinion(stable, "2.10.0+cpu") == LOADS
    assert second.opinion(native, "2.13.0") == ""


def grid(tmp_path: Path) -> Grid:
    """Two torches; the library loads in one, against the other tool's prediction in the other."""
    wheel = Wheel(make_wheel(tmp_path, "decay", ""), "decay==1", (), "==2.13.0", "import decay")
    cells = (
        GridCell(
            "2.10.0",
            (LibraryTrial(FAILS, "no libcudart.so.13", REFUSES, "x", "decay/_C.so", LOADS),),
            PackageTrial(FAILS, "no libcudart.so.13", REFUSES, "OSError: x"),
        ),
        GridCell(
            "2.13.0",
            (LibraryTrial(LOADS, "every symbol is there", LOADS, "", "decay/_C.so", LOADS),),
            PackageTrial(WORKS, "every symbol is there", WRONG, "ValueError: 0.25"),
        ),
    )
    environments = {
        torch: Environment(tmp_path, found, "3.11.7", flavour)
        for torch, found, flavour in (
            ("2.10.0", "2.10.0", "stubbed"),
            ("2.13.0", "2.13.0+cpu", "cpu"),
        )
    }
    return Grid(environments, (Line(wheel, "0" * 64, cells),))


def test_a_table_marks_what_was_not_predicted(tmp_path: Path) -> None:
    shown = markdown(grid(tmp_path))
    assert "| `decay==1` | refuses | **" in shown
    assert "**wrong; 1 of 1 libraries load; not as predicted**" in shown


def test_the_terminal_gives_the_reason_of_what_was_not_predicted_alone(tmp_path: Path) -> None:
    (line,) = grid(tmp_path).lines
    assert details(line).plain.splitlines() == [
        "decay==1 in torch 2.10.0: refuses",
        "decay==1 in torch 2.13.0: wrong; 1 of 1 libraries load; not as predicted",
        "  the package: predicted works, every symbol is there",
        "  found: wrong ValueError: 0.25",
    ]


def test_a_grid_that_is_not_as_predicted_fails_the_command_and_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.GridSession, "run", lambda _: (grid(tmp_path), []))
    page = tmp_path / "page.md"
    (tmp_path / "given").mkdir()
    wheel = make_wheel(tmp_path / "given", "decay", "")
    assert command.main([str(wheel), "--write", str(page)]) == 1
    assert "2 cells, 1 not as predicted, 0 not run, 0 wheels" in capsys.readouterr().out
    assert f"torchproof grid {wheel} --write {page}" in page.read_text()


def test_a_page_has_its_picture_its_data_and_who_was_right(tmp_path: Path) -> None:
    path = tmp_path / "what-loads-where.md"
    absent = released.Absent("growth", "nobody has released it", 1)
    heading = released_page.Heading("What loads where", "Wheels", "torchproof grid list.toml")
    released_page.write(path, grid(tmp_path), [absent], heading)
    page = path.read_text()
    assert "2 cells on CPython 3.11.7, in which 4 libraries and\npackages were tried, 1 not" in page
    assert "| decay==1 | `_C.so` | 2.10.0 | loads | fails: no libcudart.so.13 | refuses |" in page
    assert "- growth: nobody has released it" in page
    assert "](what-loads-where.svg)" in page
    assert path.with_suffix(".svg").read_text().count("<rect") == 1 + 2
    data = json.loads(path.with_suffix(".json").read_text())
    assert [cell["as_predicted"] for cell in data["wheels"][0]["cells"]] == [True, False]


def test_a_page_shows_that_a_message_goes_on_and_quotes_its_backticks(tmp_path: Path) -> None:
    path, heading = tmp_path / "a.md", released_page.Heading("A title", "Wheels", "torchproof grid")
    (line,) = grid(tmp_path).lines
    package = replace(line.cells[0].package, message=f"run `pip install decay`: {'x' * 200}")
    cells = (replace(line.cells[0], package=package),)
    found = replace(grid(tmp_path), lines=(replace(line, cells=cells),))
    released_page.write(path, found, [], heading)
    assert f"(`` run `pip install decay`: {'x' * 135}... ``)" in path.read_text()


def test_a_page_is_made_again_of_its_data(tmp_path: Path) -> None:
    path, heading = tmp_path / "a.md", released_page.Heading("A title", "Wheels", "torchproof grid")
    absent = released.Absent("growth", "nobody has released it", 1)
    released_page.write(path, grid(tmp_path), [absent], heading)
    assert released_page.differing(path) == []
    path.write_text(path.read_text().replace("refuses", "works"))
    assert released_page.differing(path) == [str(path)]
    path.with_suffix(".svg").unlink()
    assert released_page.differing(path) == [str(path), str(path.with_suffix(".svg"))]


def test_lines_grow_a_wheel_at_a_time(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    wheels = (read_wheel(make_wheel(tmp_path, name, "")) for name in ("decay", "growth"))
    found = lines(wheels, {"2.13.0": environment}, prober)
    assert next(found).wheel.name.startswith("decay")
    assert not (tmp_path / "growth-1-py3-none-any.whl").exists()
    assert next(found).wheel.name.startswith("growth")


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
