"""The campaign `faults`: what it takes for a fault that was survived, and what it finds."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import fault_namespaces
import fault_plants
import faults
import pytest
from fault_programs import Broken, Subject

# It starts a process that outlives it, with its output.
FORGETFUL = """
import pathlib, subprocess, sys, time
subprocess.Popen(["sleep", "60"], start_new_session=True)
pathlib.Path(sys.argv[1], "begun").touch()
time.sleep(60)
"""


def program(code: str) -> Subject:
    return Subject(
        "program",
        lambda folder: [sys.executable, "-c", code, str(folder)],
        lambda _: {},
        lambda _, output: output.strip(),
        lambda _: None,
    )


@pytest.fixture
def campaign(tmp_path: Path) -> faults.Campaign:
    return faults.Campaign(tmp_path, random.Random(1), time.monotonic() + 60)


def test_a_matrix_that_nothing_disturbs_has_rows_that_passed(campaign: faults.Campaign) -> None:
    found, seconds = campaign.undisturbed(faults.MATRIX)
    assert {status for _, status, *_ in found} == {"passed"}
    assert seconds > faults.MATRIX.first_s


def test_a_process_that_keeps_the_output_open_does_not_delay_the_verdict(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    moment, verdict = 0.5, ""
    while not (folder / "begun").exists():  # it may start slowly
        moment *= 2
        try:
            faults.disturb(program(FORGETFUL), folder, "SIGKILL", moment)
        except Broken as broken:
            verdict = str(broken)
    assert verdict == "1 processes live on: sleep 60"


def test_a_program_that_ends_badly_before_it_is_disturbed_is_found(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(Broken, match="before it is disturbed, it ends with 3"):
        faults.disturb(program("raise SystemExit(3)"), folder, "SIGKILL", 60.0)


def test_a_result_that_differs_after_a_disturbance_is_found(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    program("print(1)").check(folder, "1")
    with pytest.raises(Broken, match="its result differs: 2 in place of 1"):
        program("print(2)").check(folder, "1")


def test_reports_of_conda_are_equal_but_for_times_and_hashes(tmp_path: Path) -> None:
    def shown(seconds: float, sha256: str, status: str) -> object:
        proof = {"name": "reproducible", "status": status, "seconds": seconds, "kept": False}
        package = {"name": "lltm", "sha256": sha256, "bytes": len(sha256), "audit": "passed"}
        document = {"packages": [package], "proofs": [proof], "environments": [], "rendered": []}
        more = {"ok": True, "channel_packages": 3, "not_run": []}
        file = tmp_path / "build" / "conda" / "report.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**document, **more}), encoding="utf-8")
        return faults.CONDA.result(tmp_path, "")

    assert shown(1.0, "00", "passed") == shown(2.0, "111", "passed")
    assert shown(1.0, "00", "passed") != shown(1.0, "00", "failed")


def test_a_disk_is_full_then_has_room_and_then_cannot_be_written(tmp_path: Path) -> None:
    disk = fault_namespaces.mount(tmp_path, "64k")
    if disk is None:
        pytest.skip(f"not run: {fault_namespaces.REFUSED}")
    write = [*disk.enter, "dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=100k", "count=1"]

    def output() -> str:
        return subprocess.run(write, capture_output=True, text=True, check=False).stderr

    assert "No space left" in output()
    disk.remount("rw,size=1m")
    assert "102400 bytes" in output()
    assert [path.name for path in disk.seen.iterdir()] == ["file"]
    disk.remount("ro")
    assert "Read-only file system" in output()
    disk.close()
    assert list(tmp_path.iterdir()) == []


def test_a_fault_that_cannot_be_made_here_is_not_run(
    campaign: faults.Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_namespaces, "BEGINNINGS", {("false",): ()})
    one = program("print(1)")
    campaign.full_disk(one, "64k", "")
    campaign.read_only(one, "")
    campaign.network(one, "no network")
    assert (campaign.cases, campaign.findings) == (0, [])
    kinds = ("full disk", "read-only", "no network")
    refused = "neither as this user nor as root"
    assert [kind in line and refused in line
            for kind, line in zip(kinds, campaign.not_run, strict=True)] == [True] * 3  # fmt: skip


def test_every_kind_of_planted_bug_has_a_fault_that_must_find_it() -> None:
    assert [bug for bug, *_ in faults.PLANTS] == list(fault_plants.BUGS)


def test_a_planted_bug_is_found(campaign: faults.Campaign) -> None:
    ((attempt, words),) = (found for bug, _, *found in faults.PLANTS if bug == "a lock")
    attempt(campaign, faults.planted("a lock", faults.MATRIX))
    assert [line for line in campaign.findings if words in line]
    assert not campaign.survived
