"""A processor's record holds what passed there, and of which kernels."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from torchproof.machine.sample_processors import AMX, ZEN4
from torchproof.report import page, proofs, readme
from torchproof.report.page import plots, sample
from torchproof.report.proofs import Record
from torchproof.rows.results import FAILED, NOT_RUN, Result

from torchproof import config, files

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef"
ROWS = (
    sample.row("2.13.0", "3.11"),
    sample.row("2.13.0", "3.11", "native", "clang++-14"),
    sample.row("2.13.0", "3.11", level="avx2"),
)
ABSENT = dataclasses.replace(
    sample.row("2.15.0", "3.14"), status=NOT_RUN, reason="no CPython 3.14", tests=None
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one kernel, under git."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "kernel.cpp").write_text("1")
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "FOLDER", tmp_path / "docs" / "proofs")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one")
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True)


def kept() -> proofs.Proof:
    (record,) = proofs.read_all()
    return record.tiers["local"]


def test_a_record_holds_what_passed(root: Path) -> None:
    path = proofs.record("local", [*ROWS, ABSENT], AMX, COMMIT)
    assert path == root / "docs" / "proofs" / "intel-with-amx.json"
    (record,) = proofs.read_all()
    assert record.processor == AMX
    proof = record.tiers["local"]
    assert (proof.torch, proof.python) == (("2.13.0",), ("3.11",))
    assert proof.compilers == ("g++-12", "clang++-14")
    assert proof.levels == {"host": 2, "avx2": 1}
    assert proof.tests == 3 * 1102
    assert proof.not_run == {ABSENT.id: "no CPython 3.14"}
    assert record.in_use["avx2"]["decay"] == "avx2"
    assert proof.current


def test_a_record_keeps_what_a_page_shows_of_its_rows(root: Path) -> None:
    proofs.record("local", ROWS, AMX, COMMIT)
    (record,) = proofs.read_all()
    again = proofs.results(record)
    assert sorted(row.level for row in again) == sorted(row.level for row in ROWS)
    assert plots.oracle(again) == plots.oracle(ROWS)
    assert plots.speed(again).words == plots.speed(ROWS).words
    (root / "csrc" / "kernel.cpp").write_text("2")
    assert {row.reason for row in proofs.results(record)} == {"at 0123456, older than the kernels"}
    assert "stable g++-12, older" in page.render(root, "recorded", proofs.results(record))


def test_a_record_is_of_its_kernels(root: Path) -> None:
    proofs.record("local", ROWS, AMX, COMMIT)
    (root / "csrc" / "kernel.cpp").write_text("2")
    assert not kept().current
    (root / "csrc" / "kernel.cpp").write_text("1")
    assert kept().current


def test_a_tier_is_recorded_beside_the_others_and_each_processor_alone(root: Path) -> None:
    proofs.record("local", ROWS, AMX, COMMIT)
    proofs.record("pr", ROWS[:1], AMX, COMMIT)
    proofs.record("local", ROWS[:1], ZEN4, COMMIT)
    first, second = proofs.read_all()
    assert (first.processor, set(first.tiers)) == (ZEN4, {"local"})
    assert (second.processor, set(second.tiers)) == (AMX, {"local", "pr"})
    assert second.tiers["local"].levels == {"host": 2, "avx2": 1}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([*ROWS, dataclasses.replace(ROWS[0], status=FAILED)], "1 of 4 rows failed"),
        ([ABSENT], "no row passed"),
    ],
)
def test_what_has_not_passed_is_not_recorded(root: Path, rows: list[Result], words: str) -> None:
    with pytest.raises(proofs.Unrecordable, match=words):
        proofs.record("local", rows, AMX, COMMIT)
    assert proofs.read_all() == ()


def test_a_tree_that_differs_from_its_commit_is_refused(root: Path) -> None:
    assert len(proofs.clean_commit()) == 40
    (root / "docs" / "proofs").mkdir(parents=True)
    (root / "docs" / "proofs" / "a.json").write_text("{}")
    (root / "README.md").write_text("a record's table")
    assert len(proofs.clean_commit()) == 40
    (root / "csrc" / "kernel.cpp").write_text("2")
    with pytest.raises(proofs.Unrecordable, match=r"differs from its commit in csrc/kernel.cpp"):
        proofs.clean_commit()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("größe räume.cpp", "größe räume.cpp"),
        ('"quoted".cpp', '"quoted".cpp'),
        (b"gr\xf6sse.cpp", "gr\\xf6sse.cpp"),
    ],
)
def test_a_file_that_differs_is_named_as_it_is(root: Path, name: str | bytes, shown: str) -> None:
    (root / "csrc" / os.fsdecode(name)).write_text("1")
    git(root, "add", ".")
    with pytest.raises(proofs.Unrecordable, match=re.escape(f" in csrc/{shown}; commit first")):
        proofs.clean_commit()


def test_a_new_file_is_seen_where_git_is_told_to_show_none(root: Path) -> None:
    git(root, "config", "status.showUntrackedFiles", "no")
    (root / "csrc" / "new.cpp").touch()
    with pytest.raises(proofs.Unrecordable, match=r"differs from its commit in csrc/new.cpp"):
        proofs.clean_commit()


def test_a_folder_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(proofs.Unrecordable, match=r"not a git repository.*record from a clone"):
        proofs.clean_commit()


@pytest.mark.usefixtures("root")
def test_git_is_quoted_where_its_reason_is_not_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a folder that another user has made, to which git adds its advice."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(
        proofs.Unrecordable, match=r"^--record: git rev-parse: fatal: detected dubious ownership "
    ):
        proofs.clean_commit()


@pytest.mark.parametrize(
    "value", [{}, {"processor": {}, "in_use": {}, "tiers": {}}, [], {"tiers": "text"}, 7]
)
def test_a_file_that_is_no_record_is_named(root: Path, value: object) -> None:
    proofs.FOLDER.mkdir(parents=True)
    (proofs.FOLDER / "other.json").write_text(json.dumps(value))
    with pytest.raises(config.ConfigError, match=r"other\.json: is no record of proofs"):
        proofs.read_all()


CONFLICT = "{\n<<<<<<< ours\n"


@pytest.mark.parametrize("text", [CONFLICT, "", "null", "[" * 100_000], ids=lambda t: t[:4])
def test_a_damaged_record_is_named_and_not_recorded_over(root: Path, text: str) -> None:
    file = proofs.record("local", ROWS, AMX, COMMIT)
    file.write_text(text)
    with pytest.raises(config.ConfigError, match=r"intel-with-amx\.json: is no record of proofs"):
        proofs.record("pr", ROWS, AMX, COMMIT)
    assert file.read_text() == text


def test_rows_are_recorded_one_by_one_and_a_newer_run_takes_the_place_of_an_older(
    root: Path,
) -> None:
    emulated = dataclasses.replace(
        ROWS[0], platform="linux-aarch64", emulator="qemu-user 1.0", in_use={"decay": "baseline"}
    )
    proofs.record("local", ROWS, AMX, COMMIT)
    proofs.record("nightly", [emulated, ABSENT], AMX, COMMIT, whole=False)
    (root / "csrc" / "kernel.cpp").write_text("2")
    proofs.record("nightly", ROWS[:1], AMX, "another commit", whole=False)
    (record,) = proofs.read_all()
    assert set(record.tiers) == {"local"}
    assert len(record.rows) == len(ROWS) + 1
    assert {(row.commit, row.binding, row.level) for row in record.rows if row.current} == {
        ("another commit", "stable", "host")
    }
    assert [row.emulator for row in record.rows if row.platform == "linux-aarch64"] == [
        "qemu-user 1.0"
    ]
    # What an emulated processor has is not what this one has.
    assert record.in_use["host"]["decay"] == "avx512"


def table(text: str) -> dict[str, list[str]]:
    """The cells of every line of the README's tables, by the first."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if cells}


def test_the_readme_claims_what_has_passed_and_nothing_else() -> None:
    cells = table(readme.tables(config.load(), sample.records()))
    pythons = cells["torch"]
    by_python = {name: dict(zip(pythons, cells[name], strict=True)) for name in ("2.13", "2.15")}
    newest, headers = by_python["2.15"], by_python["2.13"]
    assert headers.pop("CPython 3.11") == "full"
    assert headers.pop("native build") == "not run (proof on CPython 3.11)"
    assert headers.pop("CPython 3.15") == headers.pop("CPython 3.15t") == "—"
    assert set(headers.values()) == {"not run"}
    assert newest["CPython 3.12"] == "not run (core; full with older kernels)"
    assert newest["CPython 3.11"] == "not run"
    assert set(cells["2.9"]) == {"—", "not run"}
    assert cells["linux-aarch64"] == [
        "torch 2.13, CPython 3.11, stable (core)",
        "Intel with AMX (emulated by qemu-user 10.0.13), 2026-01-01, 0123456",
    ]
    assert set(cells["macos-arm64"]) == set(cells["nehalem"]) == {"not run"}


def test_the_readme_of_a_project_without_a_stable_wheel_claims_native_builds_alone() -> None:
    matrix = config.load()
    rows = tuple(dataclasses.replace(spec, binding=("native",)) for spec in matrix.rows)
    (_, _, proof) = sample.records()[0].rows
    full = dataclasses.replace(proof, python="3.12", suite="full")
    oldest = dataclasses.replace(full, torch="2.9.1")
    text = readme.tables(
        dataclasses.replace(matrix, rows=rows), (Record(AMX, {}, {}, (proof, full, oldest)),)
    )
    cells = table(text)
    assert all(name.startswith("CPython ") for name in cells["torch"])
    headers = dict(zip(cells["torch"], cells["2.13"], strict=True))
    assert headers["CPython 3.11"] == "not run (proof)"
    assert headers["CPython 3.12"] == "full"
    assert "full" in cells["2.9"]
    assert "on linux-x86_64 with a native build. " in text
    assert "stable wheel" not in text


def test_a_processor_that_has_no_more_than_a_level_runs_its_rows_at_it() -> None:
    (stable, *_) = sample.records()[0].rows
    newest = dataclasses.replace(stable, torch="2.15.0")
    earlier = dataclasses.replace(stable, python="3.12", kernels="of another day")
    record = Record(ZEN4, {}, {}, (stable, newest, earlier))
    cells = table(readme.tables(config.load(), (record,)))
    assert cells["avx512"] == [
        "torch 2.13, CPython 3.11, stable (full); "
        "torch 2.13, CPython 3.12, stable (full with older kernels)",
        "AMD Zen 4, 2026-01-01, 0123456",
    ]
    assert set(cells["avx2"]) == set(cells["nehalem"]) == {"not run"}


def test_runs_of_older_kernels_are_named_together_after_those_of_these() -> None:
    (stable, *_) = sample.records()[0].rows
    old = dataclasses.replace(stable, kernels="of another day")
    zen5 = dataclasses.replace(ZEN4, family=26)
    records = tuple(
        Record(processor, {}, {}, (dataclasses.replace(row, level="avx2"),))
        for processor, row in ((AMX, old), (ZEN4, stable), (zen5, old))
    )
    cells = table(readme.tables(config.load(), records))
    assert cells["avx2"][1] == (
        "AMD Zen 4, 2026-01-01, 0123456; older kernels: AMD Zen 5, Intel with AMX"
    )


def test_the_readme_names_each_processor_and_the_age_of_its_proofs() -> None:
    text = readme.tables(config.load(), sample.records())
    amx = next(line for line in text.splitlines() if line.startswith("| **Intel with AMX**"))
    assert "2026-01-01, 0123456: CPython 3.11; rows 6 at host, 2 at avx2 | not recorded |" in amx
    zen = next(line for line in text.splitlines() if line.startswith("| **AMD Zen 4**"))
    assert zen.count("older than the kernels") == 2
