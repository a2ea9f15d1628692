"""What a campaign keeps of a run, and of the bugs that were planted for it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
import record
from torchproof.files import kernels_hash
from torchproof.machine import processor


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where records are written, and where they are committed from."""
    built, committed = tmp_path / "built", tmp_path / "committed"
    monkeypatch.setattr(record, "BUILT", built)
    monkeypatch.setattr(record, "COMMITTED", committed)
    return built, committed


def test_a_proof_has_the_day_and_the_commit_and_leaves_the_record_as_it_is(
    folders: tuple[Path, Path],
) -> None:
    built, committed = folders
    run = record.Record(campaign="fuzz", seed=3, minutes=1.0, cases=5, unit="inputs")
    before = run.write(commit=True).read_bytes()
    file = record.Proof("fuzz", planted=4, found=4).write(commit=True)
    proof = json.loads(file.read_text(encoding="utf-8"))
    assert (proof["planted"], proof["found"]) == (4, 4)
    assert datetime.date.fromisoformat(proof["date"])
    assert proof["commit"]
    assert (committed / "fuzz.json").read_bytes() == before
    assert (built / "proven" / "fuzz.json").read_bytes() == file.read_bytes()


def test_a_record_names_what_it_was_made_with(folders: tuple[Path, Path]) -> None:
    run = record.Record(campaign="fuzz", seed=3, minutes=1.0, cases=5, unit="inputs")
    document = json.loads(run.write(commit=False).read_text(encoding="utf-8"))
    assert document["processor"] == processor.read().title
    assert document["kernels"] == kernels_hash()
    assert document["commit"]


def test_a_proof_is_committed_only_with_record(folders: tuple[Path, Path]) -> None:
    record.Proof("fuzz", planted=4, found=4).write(commit=False)
    assert not folders[1].exists()


@pytest.mark.parametrize(("planted", "found", "status"), [(4, 4, 0), (4, 3, 1), (0, 0, 1)])
def test_a_planted_bug_that_is_not_found_fails(planted: int, found: int, status: int) -> None:
    assert record.Proof("fuzz", planted, found).exit_status == status
