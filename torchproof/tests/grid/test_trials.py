"""What a wheel in a torch does: each way it can come out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
from torchproof.grid.crossload import Grid, Line, lines
from torchproof.grid.prober import Prober
from torchproof.grid.table import words
from torchproof.grid.trials import (
    ABORTS,
    FAILS,
    IMPORTS,
    LOADS,
    REFUSES,
    UNSUPPORTED,
    WORKS,
    WRONG,
    GridCell,
)
from torchproof.grid.wheel_file import read_wheel
from torchproof.machine.environments import Environment, Installer
from torchproof.machine.inventory import find_program
from wheels import ABORTING, ABSENT, METADATA, PRESENT, USER, make_wheel, torch_of

if TYPE_CHECKING:
    from conftest import Toolchain


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


def test_a_search_path_may_lead_into_a_package_that_is_required(
    prober: Prober, environment: Environment, tmp_path: Path, toolchain: Toolchain
) -> None:
    base = toolchain.stub("libbase.so", ["base"])
    required = make_wheel(tmp_path, "base", "", "", base)
    library = toolchain.library(
        "decay.so",
        USER.format(name="base") + f'extern "C" int {PRESENT}(); int torch = {PRESENT}();',
        str(base),
        str(torch_of(environment)),
        "-Wl,-rpath,$ORIGIN/../base",
    )
    needs = f"Requires-Dist: torch\nRequires-Dist: base @ {required.as_uri()}\n"
    cell = try_it(prober, environment, make_wheel(tmp_path, "decay", "", needs, library))
    (trial,) = cell.libraries
    assert (trial.predicted, trial.outcome) == (LOADS, LOADS)


def test_the_loaders_program_uses_what_was_loaded(
    prober: Prober, environment: Environment, tmp_path: Path, toolchain: Toolchain
) -> None:
    source = USER.format(name=PRESENT)
    library = toolchain.library("decay.so", source, str(torch_of(environment)))
    path = make_wheel(tmp_path, "decay", "", "", library)
    (trial,) = try_it(prober, environment, path, by_loader="raise ValueError('0.25')").libraries
    assert (trial.outcome, trial.message) == (WRONG, "ValueError: 0.25")


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
    ("distribution", "files", "package"),
    [
        ("decay", ["bench/__init__.py", "decay/__init__.py"], "decay"),
        ("decay_cu12", ["bench.py", "decay/__init__.py", "decay/ops/__init__.py"], "decay"),
        ("decay_torch", ["decay/torch/__init__.py", "decay/torch/ops/__init__.py"], "decay.torch"),
        ("decay_torch", ["decay/lib/ops/__init__.py", "decay.libs/__init__.py"], "decay.lib.ops"),
        ("decay", ["_decay.cpython-311-x86_64-linux-gnu.so", "decay.py"], "decay"),
        ("decay", ["_decay.abi3.so", "libdecay.so"], "_decay"),
        ("decay", ["decay-1.data/platlib/decay/__init__.py"], "decay"),
    ],
)
def test_a_wheel_is_imported_by_what_it_holds(
    tmp_path: Path, distribution: str, files: list[str], package: str
) -> None:
    path = tmp_path / f"{distribution}-1-py3-none-any.whl"
    metadata = METADATA.format(name=distribution, version="1", more="")
    with ZipFile(path, "w") as archive:
        for name in (*files, "decay-1.data/scripts/decay.py"):
            archive.writestr(name, "")
        archive.writestr(f"{distribution}-1.dist-info/METADATA", metadata)
    assert read_wheel(path).package == f"import {package}"


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_what_a_wheel_requires_does_not_replace_the_torch_of_its_cell(
    name: str, prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    """Each cell has the releases that its torch would be given."""
    uv = find_program("uv") if name == "uv" else None
    if name == "uv" and uv is None:
        pytest.skip("not run: there is no uv on this machine")
    for version, torch in (("1", "2.13.0"), ("2", "2.14.0")):
        make_wheel(tmp_path, "torch", "", version=torch)
        requires = f"Requires-Dist: torch=={torch}\n"
        make_wheel(tmp_path, "vision", f"made_for = '{torch}'", requires, version=version)
    path = make_wheel(
        tmp_path,
        "decay",
        "import torch.version, vision; assert torch.version.__version__ == vision.made_for",
        "Requires-Dist: torch\nRequires-Dist: vision\n",
    )
    (tmp_path / "index").mkdir()
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    settings |= {"UV_DEFAULT_INDEX": (tmp_path / "index").as_uri(), "UV_FIND_LINKS": str(tmp_path)}
    real = replace(prober, installer=Installer(uv, settings))
    newer = replace(environment, path=tmp_path / "newer", torch="2.14.0")
    shutil.copytree(environment.path, newer.path)
    version = newer.site_packages / "torch" / "version.py"
    version.write_text(version.read_text().replace("2.13.0", "2.14.0"))
    program = newer.program.read_text()
    newer.program.write_text(program.replace(str(environment.path), str(newer.path)))
    (line,) = lines([read_wheel(path)], {"2.13.0": environment, "2.14.0": newer}, real)
    assert isinstance(line, Line)
    assert [(each.package.outcome, each.package.message) for each in line.cells] == [
        (IMPORTS, ""),
        (IMPORTS, ""),
    ]


def test_lines_grow_a_wheel_at_a_time(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    wheels = (read_wheel(make_wheel(tmp_path, name, "")) for name in ("decay", "growth"))
    found = lines(wheels, {"2.13.0": environment}, prober)
    assert next(found).wheel.name.startswith("decay")
    assert not (tmp_path / "growth-1-py3-none-any.whl").exists()
    assert next(found).wheel.name.startswith("growth")


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
