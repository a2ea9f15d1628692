"""The command line of the tool, as far as it runs no row."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torchproof.lock import BusyError
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import Interpreter, Machine
from torchproof.machine.sample_processors import AMX
from torchproof.report import proofs
from torchproof.rows import results
from torchproof.rows.plan import Placed, expand, place
from torchproof.rows.results import begin

from torchproof import config, files
from torchproof import matrix as tool

MACHINE = Machine(Interpreter(Path("python"), "3.11.7"), (), (), None, gpu=False, processor=AMX)
ROWS = ["--tier", "pr", "--select", "torch=2.10"]
"""More than one row, of one wheel."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tool, "BUILD", tmp_path)
    monkeypatch.setattr(tool, "this_machine", lambda: MACHINE)
    return tmp_path


def keep(folder: Path, status: str, sha256: str = "aa", **figures: Any) -> None:
    """Results of every row of the tier `pr`, as a run on other machines leaves them."""
    matrix = config.load()
    for placed in place(matrix, expand(matrix, "pr"), MACHINE):
        artifact = {"name": "wheel", "wheel": "a.whl", "sha256": sha256, "bytes": 1, "seconds": 1.0}
        result = results.begin(placed.row)
        done = dataclasses.replace(result, status=status, artifact=artifact, **figures)
        results.write(folder / "rows", done)


def one_of_the_rows(folder: Path) -> Path:
    """What is kept of one of ROWS."""
    return min((folder / "rows").glob("torch2.10*"))


def test_a_report_is_made_of_what_other_runs_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, results.PASSED)
    assert tool.main([*ROWS, "--report", "--strict", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in document["rows"]} == {"passed"}
    assert files.read_sealed(folder / "report.json") == document


def test_a_table_in_a_log_keeps_its_words(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = {"compiler": "clang++-14", "level": "avx512_bf16", "packages": "stubs"}
    keep(folder, results.PASSED, tests=results.Counts(passed=10_554, failed=0, skipped=54), **long)
    assert tool.main([*ROWS, "--report"]) == 0
    told = capsys.readouterr().out
    assert "…" not in told
    assert re.search(r"clang\+\+-14 avx512_bf16 .* 10554/10608 .* passed", told)


def test_a_row_nobody_ran_is_not_run_and_fails_a_strict_report(folder: Path) -> None:
    keep(folder, results.PASSED)
    one_of_the_rows(folder).unlink()
    assert tool.main([*ROWS, "--report"]) == 0
    assert tool.main([*ROWS, "--report", "--strict"]) == 1
    (missing,) = (
        row
        for row in json.loads((folder / "report.json").read_text())["rows"]
        if row["status"] != results.PASSED
    )
    assert missing["status"] == results.NOT_RUN
    assert missing["reason"] == "no run of this row has been kept"


@pytest.mark.parametrize("damage", [b"\xff", b'"a string"', b"[]", b"{}", b'{"id": '], ids=repr)
def test_a_damaged_row_is_not_run_and_says_so(folder: Path, damage: bytes) -> None:
    keep(folder, results.PASSED)
    one_of_the_rows(folder).write_bytes(damage)
    assert tool.main([*ROWS, "--report", "--strict"]) == 1
    document = json.loads((folder / "report.json").read_text())
    (row,) = (row for row in document["rows"] if row["status"] != results.PASSED)
    assert row["reason"].startswith("what was kept of this row is damaged")


def test_a_failed_row_fails_the_report(folder: Path) -> None:
    keep(folder, results.FAILED)
    assert tool.main([*ROWS, "--report"]) == 1


def test_rows_on_different_builds_of_one_wheel_fail_the_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, results.PASSED)
    path = one_of_the_rows(folder)
    result = results.read(path.parent, path.stem)
    assert result is not None
    assert result.artifact is not None
    other = dataclasses.replace(result, artifact={**result.artifact, "sha256": "bb"})
    results.write(path.parent, other)
    assert tool.main([*ROWS, "--report"]) == 1
    assert "wheel: the rows were run on 2 different wheels" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["--strict"], ["--list"], ["--report"]], ids=" ".join)
def test_a_tier_without_a_row_is_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    matrix = config.load()
    empty = dataclasses.replace(matrix.tiers[0], name="weekly")
    changed = dataclasses.replace(matrix, tiers=(*matrix.tiers, empty))
    monkeypatch.setattr(config, "load", lambda: changed)
    assert tool.main(["--tier", "weekly", *command]) == 2
    message = " ".join(capsys.readouterr().out.split())
    assert "tier 'weekly' has no row; rows are of local, nightly, pr" in message


# --record -----------------------------------------------------------------------------------------


@pytest.fixture
def proven(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean tree, and where records are kept."""
    monkeypatch.setattr(proofs, "FOLDER", folder / "proofs")
    monkeypatch.setattr(proofs, "clean_commit", lambda: "0123456789abcdef")
    return folder / "proofs"


def comes_to(monkeypatch: pytest.MonkeyPatch, *statuses: str) -> None:
    """Let the rows come to these in turn, without running them."""

    def run_rows(matrix: object, machine: object, placed: tuple[Placed, ...], *_: object) -> object:
        return tuple(
            dataclasses.replace(results.begin(p.row), status=status)
            for p, status in zip(placed, itertools.cycle(statuses), strict=False)
        )

    monkeypatch.setattr(tool, "run_rows", run_rows)


def test_a_tier_that_passed_is_recorded_for_this_processor(
    proven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, results.PASSED)
    assert tool.main(["--record"]) == 0
    assert tool.main(["--tier", "pr", "--record"]) == 0
    (record,) = proofs.read_all()
    assert record.processor == MACHINE.processor
    assert set(record.tiers) == {"local", "pr"}
    assert {proof.commit for proof in record.tiers.values()} == {"0123456789abcdef"}
    page = (proven.parent / "index.html").read_text(encoding="utf-8")
    assert page.count("0123456, ") == 2  # both tiers


def test_a_part_of_a_tier_records_its_rows_and_not_the_tier(
    proven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, results.PASSED)
    assert tool.main(["--tier", "pr", "--select", "torch=2.15,python=3.12", "--record"]) == 0
    (record,) = proofs.read_all()
    assert record.tiers == {}
    assert {(row.torch, row.python, row.suite) for row in record.rows} == {
        ("2.15.0", "3.12", "full")
    }


def test_a_tier_with_a_failed_row_is_not_recorded(
    proven: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    comes_to(monkeypatch, results.FAILED)
    assert tool.main(["--record"]) == 1
    assert "rows failed, so nothing is recorded" in " ".join(capsys.readouterr().out.split())
    assert not proven.exists()


def test_a_record_leaves_a_strict_run_with_a_row_not_run_failed(
    proven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, results.PASSED, results.NOT_RUN)
    assert tool.main(["--record"]) == 0
    assert tool.main(["--record", "--strict"]) == 1
    assert proofs.read_all()


def test_without_record_nothing_is_recorded(proven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comes_to(monkeypatch, results.PASSED)
    assert tool.main([]) == 0
    assert not proven.exists()


def test_a_tree_with_changes_is_refused_before_anything_runs(
    proven: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed() -> str:
        raise proofs.Unrecordable("--record: the tree differs from its commit in csrc/kernel.cpp")

    def never(*_: object) -> None:
        raise AssertionError("rows were run")

    monkeypatch.setattr(proofs, "clean_commit", changed)
    monkeypatch.setattr(tool, "run_rows", never)
    assert tool.main(["--record"]) == 2
    assert "differs from its commit" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("options", [[], ["--record"], ["--report"]], ids=" ".join)
def test_a_damaged_record_is_named_before_anything_runs(
    proven: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("rows were run")

    proven.mkdir()
    (proven / "another-processor.json").write_text("<<<<<<< ours\n")
    monkeypatch.setattr(tool, "run_rows", never)
    assert tool.main(options) == 2
    message = " ".join(capsys.readouterr().out.split())
    assert "another-processor.json: is no record of proofs" in message
    assert tool.main(["--list"]) == 0


@pytest.mark.parametrize(
    "more",
    [["--list"], ["--report"], ["--build"], ["--check"], ["--write"]],
    ids=" ".join,
)
def test_only_a_run_is_recorded(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool.main(["--record", *more])
    assert ended.value.code == 2
    assert "--record" in capsys.readouterr().err


def test_one_thing_is_done_instead_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool.main(["--check", "--write"])
    assert ended.value.code == 2
    assert "--write: not allowed with argument --check" in capsys.readouterr().err


def test_a_list_says_once_what_is_missing_for_how_many_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--list", "--tier", "pr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    reasons = [line for line in lines if line.startswith("not here: ")]
    counts = [int(line.split()[2]) for line in reasons]
    assert len(reasons) == len({line.split(" x ")[1] for line in reasons})
    assert sum(counts) == sum(line.split()[-1:] == ["no"] for line in lines) > len(reasons) > 0


@pytest.mark.parametrize(
    "select",
    [
        ["--select", "python=3.11,python=3.12,torch=2.15"],
        ["--select", "python=3.11", "--select", "python=3.12", "--select=torch=2.15"],
    ],
    ids=["once", "one by one"],
)
def test_every_select_counts(
    folder: Path, capsys: pytest.CaptureFixture[str], select: list[str]
) -> None:
    assert tool.main(["--list", "--json", "--tier", "nightly", *select]) == 0
    found = {(row["torch"], row["python"]) for row in json.loads(capsys.readouterr().out)}
    assert found == {("2.15.0", "3.11"), ("2.15.0", "3.12")}


def test_a_select_of_nothing_selects_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """As a script has it whose variable is not set."""
    listed = []
    for select in ((), ("--select", "")):
        assert tool.main(["--list", "--json", *select]) == 0
        listed.append(capsys.readouterr().out)
    assert listed[0] == listed[1]


# Runs that end early -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "code", "message"),
    [
        (KeyboardInterrupt(), tool.INTERRUPTED, "what is proven is kept; go on with --resume"),
        (BusyError("another run is at work in build"), 2, "error: another run is at work in build"),
        (
            OSError(28, "No space left on device"),
            2,
            "error: No space left on device; free some space and run this again; finished rows are "
            "kept: continue with --resume",
        ),
    ],
    ids=["interrupt", "busy", "full disk"],
)
def test_a_run_that_ends_early_says_what_is_kept(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: BaseException,
    code: int,
    message: str,
) -> None:
    def run(*_: object, **__: object) -> None:
        raise ended

    monkeypatch.setattr(tool, "run", run)
    assert tool.main(ROWS) == code
    assert message in " ".join(capsys.readouterr().out.split())
    assert not (folder / "report.json").exists()


def test_what_emulates_a_row_and_is_not_to_be_had_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch(*_: object) -> None:
        raise NotOffered("there is no apt-get on PATH")

    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))  # where nothing was fetched before
    monkeypatch.setattr(tool.emulation, "fetch", fetch)
    monkeypatch.setattr(tool, "run", lambda placed, *_, **__: tuple(begin(p.row) for p in placed))
    assert tool.main(["--tier", "nightly", "--select", "platform=linux-aarch64", "--strict"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "fetching CPython" in out
    assert "not fetched: there is no apt-get on PATH" in out


def check_with(folder: Path, old: str, new: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Check the project with a change of its matrix.toml, or run another command on it."""
    text = config.PATH.read_text(encoding="utf-8")
    assert old in text
    project = folder / "project"
    shutil.copytree(config.ROOT, project)
    (project / "matrix.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    program = [sys.executable, "-m", "torchproof", *(command or ("check",))]
    return subprocess.run(program, cwd=project, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["check", "run --write"])
def test_a_matrix_without_a_suite_is_named_and_nothing_is_made_of_it(
    tmp_path: Path, command: str
) -> None:
    text = config.PATH.read_text(encoding="utf-8")
    stated = text[text.index("suites = [") : text.index("\n]\n", text.index("suites = [")) + 3]
    done = check_with(tmp_path, stated, "", *command.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert "[names] suite 'core' is none: there are no `suites`\n" in done.stdout
    before, after = (folder / "README.md" for folder in (config.ROOT, tmp_path / "project"))
    assert after.read_bytes() == before.read_bytes()


def test_a_broken_rule_is_named_with_its_line(tmp_path: Path) -> None:
    lines = config.PATH.read_text(encoding="utf-8").splitlines()
    line = next(at for at, each in enumerate(lines, 1) if 'suite = "core"' in each)
    done = check_with(tmp_path, 'suite = "core"', 'suite = "cor"')
    assert done.returncode == 1
    assert f"matrix.toml:{line}: [names] " in done.stdout


def test_a_path_of_the_project_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    text = config.PATH.read_text(encoding="utf-8")
    stated = text[text.index('sources = ["csrc", ') : text.index("build = {")]
    wrong = stated.replace('"csrc"', '"csrcc"').replace('"tests', '"testz')
    wrong = wrong.replace('"benchmarks"', '"bench"').replace('generated = ["decay/lib"]\n', "")
    done = check_with(tmp_path, stated, wrong)
    lines = (tmp_path / "project" / "matrix.toml").read_text(encoding="utf-8").splitlines()
    assert done.returncode == 1
    for key, path in (
        ("sources", "csrcc"),
        ("kernels", "csrcc"),
        ("tests", "testz"),
        ("benchmarks", "bench"),
        ("smoke", "testz/smoke.py"),
    ):
        line = next(at for at, each in enumerate(lines, 1) if each.startswith(f"{key} = "))
        assert f"matrix.toml:{line}: [paths] project.{key}: {path} is not there\n" in done.stdout
    assert len(done.stdout.splitlines()) == 5


LONG = "t" * 256
"""A byte more than a file's name may have."""


def test_a_suite_with_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    done = check_with(tmp_path, 'paths = ["tests"', f'paths = ["{LONG}"')
    assert done.returncode == 1
    assert f"{LONG} cannot be there: File name too long" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_copy_with_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    done = check_with(tmp_path, "decay/_errors.py", LONG)
    assert done.returncode == 2
    assert f"{LONG}: File name too long" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["check"], ["list"], ["audit", "decay.so"]])
def test_a_matrix_that_is_not_utf_8_is_one_sentence(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "matrix.toml").write_bytes(b"# \xff\n")
    program = [sys.executable, "-m", "torchproof", *command]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith(f"error: {tmp_path / 'matrix.toml'}: not UTF-8 at line 1")
