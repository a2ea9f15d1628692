"""What is measured in which process, and what a killed run leaves."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from torchproof.machine import processes, processor

from benchmarks import workloads
from benchmarks.runs import __main__, measure
from benchmarks.runs.figures import BenchError
from benchmarks.runs.measure import Measured, Measurer, Part
from benchmarks.runs.scopes import FULL, QUICK, SCOPES
from benchmarks.workloads import Row
from lltm.cells import formulas

if TYPE_CHECKING:
    from collections.abc import Callable

PART = Part("cell", "float32", "1")


def names(scope: str, select: str | None) -> list[str]:
    return [part.name for part in measure.parts(SCOPES[scope], select)]


def rows_of(part: Part) -> list[Row]:
    return workloads.select(workloads.cuda(), part.select)


def test_quick_is_one_thread_in_float32_and_full_is_everything() -> None:
    assert names("quick", None) == ["cell-float32-1", "sequence-float32-1"]
    assert len(set(names("full", None))) == 2 * 4 * 2


def test_other_kernels_than_this_trees_are_not_recorded(tmp_path: Path) -> None:
    shutil.copytree(measure.ROOT / "csrc", tmp_path / "csrc")
    measure.check_kernels(tmp_path)
    with (tmp_path / "csrc" / "cpu" / "tile.h").open("a") as changed:
        changed.write("// another")
    for package in (tmp_path, tmp_path / "without_sources"):
        with pytest.raises(BenchError, match="built from other kernels than this tree's"):
            measure.check_kernels(package)


def test_on_a_gpu_each_case_is_kept_as_soon_as_it_is_measured() -> None:
    assert len(set(names("cuda", None))) == 3 * 6
    assert names("cuda", "op=cell") == [
        "cell-float32-1-16x32x128",
        "cell-bfloat16-1-16x32x128",
        "cell-tf32-1-16x32x128",
    ]
    assert names("cuda", "case=128x1x512x512,dtype=tf32") == ["sequence-tf32-1-128x1x512x512"]
    rows = [row for part in measure.parts(SCOPES["cuda"], None) for row in rows_of(part)]
    assert sorted(row.name for row in rows) == sorted(row.name for row in workloads.cuda())


def test_each_cell_that_ships_is_raced_in_a_process_of_its_own() -> None:
    shipped = [cell.name for cell in formulas.SHIPPED]
    assert names("cells", None) == [f"{name}-float32-1" for name in shipped]
    assert names("cells", "op=gru") == ["gru-float32-1"]


def test_a_selection_keeps_only_the_parts_that_can_hold_it() -> None:
    assert names("full", "op=cell,threads=2,case=16x32x128") == [
        "cell-float32-2",
        "cell-float64-2",
        "cell-bfloat16-2",
        "cell-float16-2",
    ]


def test_a_selection_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(BenchError, match="threads=2 leaves nothing of --quick, which has op=cell"):
        names("quick", "threads=2")


@pytest.mark.parametrize("select", ["op=cell,rows=3", "nonsense"])
def test_a_selection_by_what_no_row_has_is_refused(select: str) -> None:
    with pytest.raises(BenchError, match="is none of op, case, dtype, threads, work"):
        names("quick", select)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_what_is_no_time_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.arguments([f"--seconds={seconds}"])
    assert "--seconds: " in capsys.readouterr().err


@pytest.mark.parametrize("what", ["lltm", "torch", "python", "processor"])
def test_a_result_is_kept_only_of_the_same_build_and_machine(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Measurer(tmp_path, QUICK, 1.0, None).result(PART)
    if what == "lltm":
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "build.json").write_text("{}", encoding="utf-8")
        monkeypatch.setattr(measure, "installed_package", lambda: tmp_path)
    elif what == "torch":
        monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.99.0")
    elif what == "python":
        monkeypatch.setattr(sys, "version", "3.99.0")
    else:
        another = replace(processor.read(), name="another")
        monkeypatch.setattr(processor, "read", lambda: another)
    assert Measurer(tmp_path, QUICK, 1.0, None).result(PART) != before


def test_a_result_is_kept_only_for_the_same_options(tmp_path: Path) -> None:
    one = Measurer(tmp_path, QUICK, 1.0, None)
    assert one.result(PART) == Measurer(tmp_path, QUICK, 1.0, None).result(PART)
    others = [
        Measurer(tmp_path, FULL, 1.0, None),
        Measurer(tmp_path, QUICK, 2.0, None),
        Measurer(tmp_path, QUICK, 1.0, "work=forward"),
        Measurer(tmp_path, QUICK, 1.0, None, compilers=False),
    ]
    assert one.result(PART) not in [other.result(PART) for other in others]


@pytest.fixture
def measurer(tmp_path: Path) -> Measurer:
    return Measurer(tmp_path, QUICK, 1.0, None)


def ends(monkeypatch: pytest.MonkeyPatch, status: int, written: str | None) -> None:
    """Have the races end so, having written that."""

    def run(command: list[str], *_: Any, **__: Any) -> int:
        (option,) = (each for each in command if each.startswith("--benchmark-json="))
        if written is not None:
            Path(option.partition("=")[2]).write_text(written, encoding="utf-8")
        return status

    monkeypatch.setattr(processes, "run_here", run)


GOOD = json.dumps({"benchmarks": [{"name": "a race"}]})


def test_a_finished_part_is_kept(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    ends(monkeypatch, 0, GOOD)
    assert measurer.measure(PART) == Measured(json.loads(GOOD), right=True)
    assert measure.read(measurer.result(PART)) == json.loads(GOOD)


def test_a_part_with_a_wrong_result_is_reported_but_not_kept(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, 1, GOOD)
    assert measurer.measure(PART) == Measured(json.loads(GOOD), right=False)
    assert measure.read(measurer.result(PART)) is None


def test_a_part_that_the_selection_leaves_no_row_is_no_failure(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, 0, None)
    assert measurer.measure(PART) == Measured(None, right=True)


def test_a_selection_of_one_op_races_nothing_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first worker of pytest-xdist warns of benchmarks it leaves out, which is an error here.
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    cells = Measurer(tmp_path, replace(QUICK, name="smoke"), 1.0, "case=16x32x128")
    sequences = Part("sequence", "float32", "1")
    assert cells.measure(sequences) == Measured(None, right=True)


MEASURES = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from benchmarks.runs.measure import Measurer, Part
from benchmarks.runs.scopes import QUICK
Measurer(Path(sys.argv[2]), QUICK, 1.0, None).measure(Part("cell", "float32", "1"))
"""
PYTEST = """
import os
import time
from pathlib import Path
made = Path(__file__).with_name("made")
made.write_text(str(os.getpid()))
made.rename(made.with_name("pid"))
time.sleep(300)
"""


def within_ten_seconds(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_the_races_end_with_whoever_started_them(name: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text(PYTEST)  # before the real one, in the path
    pid = tmp_path / "pid"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    command = [sys.executable, "-c", MEASURES, str(measure.ROOT), str(tmp_path)]
    with subprocess.Popen(command, env=environment) as measuring:
        while not pid.exists():
            assert measuring.poll() is None
            time.sleep(0.02)
        measuring.send_signal(signal.Signals[name])
    races = Path("/proc", pid.read_text())
    ended = within_ten_seconds(lambda: not races.exists())
    if not ended:
        os.kill(int(races.name), signal.SIGKILL)
    assert ended


@pytest.mark.parametrize("written", [None, '{"benchm', '{"benchmarks": []}'])
def test_a_killed_part_is_told_in_one_sentence(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch, written: str | None
) -> None:
    ends(monkeypatch, -9, written)
    with pytest.raises(BenchError, match="cell-float32-1 ended with status -9 and no result"):
        measurer.measure(PART)
    assert measure.read(measurer.result(PART)) is None


@pytest.mark.parametrize(
    ("status", "out", "err", "reason"),
    [
        (0, "no CUDA device\n", "", "no CUDA device"),
        (0, "", "a warning", None),
        (1, "", "Traceback\nImportError: no lltm", "ImportError: no lltm"),
    ],
)
def test_what_stands_in_the_way_of_a_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch, status: int, out: str, err: str, reason: str | None
) -> None:
    completed = subprocess.CompletedProcess([], status, out, err)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: completed)
    assert measure.gpu_unavailable_reason() == reason


def test_what_leaves_out_every_dtype_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--quick", "--without", "float32"]) == 2
    assert "--without float32 leaves nothing to measure" in capsys.readouterr().out


def test_compilers_are_left_out_of_the_races_on_request(
    measurer: Measurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def run(command: list[str], *_: Any, **__: Any) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(processes, "run_here", run)
    measurer.measure(PART)
    replace(measurer, compilers=False).measure(PART)
    assert ["--without-compilers" in command for command in commands] == [False, True]
