"""A wheel in a torch: what was predicted beside what happened, each way it can come out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from torchproof.grid import GridCell, Outcome, Prober
from torchproof.grid import __main__ as command
from torchproof.machine.environments import Environment
from torchproof.machine.processes import Processes

from torchproof import cli, grid

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"


def wheel(folder: Path, name: str, code: str, more: str = "") -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{name}-1.dist-info/METADATA", METADATA.format(name=name, more=more))
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
def environment(tmp_path: Path) -> Environment:
    """This interpreter, beside an installed torch without libraries."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    program = tmp_path / "env" / "bin" / "python"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    return Environment(tmp_path / "env", "2.13.0", "3.11.7", "cpu")


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        ("", grid.LOADS, ""),
        ("raise ImportError('undefined symbol: x')", grid.REFUSES, "undefined symbol: x"),
        ("raise OSError('no libtorch_cuda.so')", grid.REFUSES, "no libtorch_cuda.so"),
        ("raise ValueError('another result')", grid.WRONG, "ValueError: another result"),
        ("import os; os.abort()", grid.ABORTS, "killed by SIGABRT"),
    ],
)
def test_what_a_wheel_does_is_told_apart(
    prober: Prober, environment: Environment, tmp_path: Path, code: str, outcome: str, reason: str
) -> None:
    tried = grid.read_wheel(wheel(tmp_path, "decay", code), None)
    cell = prober.cell(tried, environment, "2.13.0")
    assert (cell.predicted, cell.found.outcome) == (grid.LOADS, outcome)
    assert reason in cell.found.reason
    assert cell.as_predicted == (outcome == grid.LOADS)


def test_the_users_own_program_decides(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    path = wheel(tmp_path, "decay", "half = 0.5")
    right, wrong = (f"import decay; assert decay.half == {value}" for value in (0.5, 0.25))
    found = [
        prober.cell(grid.read_wheel(path, smoke), environment, "2.13.0").found.outcome
        for smoke in (right, wrong)
    ]
    assert found == [grid.LOADS, grid.WRONG]


def test_what_cannot_be_installed_is_not_run(
    prober: Prober, environment: Environment, tmp_path: Path
) -> None:
    path = wheel(tmp_path, "decay", "", "Requires-Dist: torch\nRequires-Dist: absent>=2\n")
    tried = grid.read_wheel(path, None)
    assert tried.requires == ("absent>=2",)
    cell = prober.cell(tried, environment, "2.13.0")
    assert cell.found.outcome == grid.NOT_RUN
    assert "cannot be installed: exit status 1" in cell.found.reason


@pytest.mark.parametrize(
    ("predicted", "found", "right"),
    [
        (grid.LOADS, grid.LOADS, True),
        (grid.LOADS, grid.REFUSES, False),
        (grid.LOADS, grid.ABORTS, False),
        (grid.LOADS, grid.WRONG, False),
        (grid.FAILS, grid.REFUSES, True),
        (grid.FAILS, grid.WRONG, True),
        (grid.FAILS, grid.LOADS, False),
        (grid.FAILS, grid.ABORTS, False),
        (grid.UNSAFE, grid.ABORTS, True),
        (grid.UNSAFE, grid.LOADS, True),
    ],
)
def test_when_a_prediction_is_right(predicted: str, found: str, right: bool) -> None:
    cell = GridCell("decay", "2.13.0", predicted, "", Outcome(found, ""))
    assert cell.as_predicted == right
    if not right:
        assert f"**{found}, predicted {predicted}**" in grid.markdown([cell])


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "decay-1-py3-none-any.whl"
    damaged.write_text("no zip")
    empty = tmp_path / "empty-1-py3-none-any.whl"
    with ZipFile(empty, "w") as archive:
        archive.writestr("empty-1.dist-info/METADATA", METADATA.format(name="empty", more=""))
    good = wheel(tmp_path, "good", "")
    for arguments, words in (
        ([str(tmp_path / "absent-1-py3-none-any.whl")], "does not exist; name a wheel"),
        ([str(damaged)], "is no wheel: File is not a zip file"),
        ([str(tmp_path / "decay.whl")], "is no wheel: Invalid wheel filename"),
        ([str(empty)], "holds no package to import"),
        ([str(good), "--torch", "1.0"], "--torch: '1.0' is none of 2.9, 2.10"),
    ):
        assert command.main(arguments) == 2
        output = capsys.readouterr().out
        assert output.startswith("error: ")
        assert words in output


def test_one_program_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(f"  {name} " in usage for name in ("run", "check", "audit", "grid", "conda"))
    assert cli.main(["gird"]) == 2
    assert "there is no command 'gird'" in capsys.readouterr().err
    assert cli.main(["check"]) == 0
    assert cli.main(["--check"]) == 0
    assert cli.main(["audit", "--rules"]) == 0
