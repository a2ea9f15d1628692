"""The campaign `faults`: what it takes for a fault that was survived, and what it finds."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "campaign"))
import fault_namespaces
import fault_plants
import faults
from fault_programs import Broken, Subject

# It starts a process that outlives it, with its output, and prints what it is asked to.
FORGETFUL = """
import subprocess, sys, time
subprocess.Popen(["sleep", "20"], start_new_session=True)
time.sleep(60)
"""


def program(code: str) -> Subject:
    return Subject(
        "program",
        lambda _: [sys.executable, "-c", code],
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
    begun = time.monotonic()
    with pytest.raises(Broken, match=r"1 processes live on: sleep 20"):
        faults.disturb(program(FORGETFUL), folder, "SIGKILL", 1.0)
    assert time.monotonic() - begun < 1.0 + faults.GRACE_S + 5.0


def test_a_program_that_ends_badly_before_it_is_disturbed_is_found(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(Broken, match="before it is disturbed, it ends with 3"):
        faults.disturb(program("raise SystemExit(3)"), folder, "SIGKILL", 60.0)


def test_a_result_that_differs_after_a_disturbance_is_found(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    program("print(1)").check(folder, "1")
    with pytest.raises(Broken, match="its result differs: 2 in place of 1"):
        program("print(2)").check(folder, "1")


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
    (attempt,) = (attempt for bug, _, attempt, _ in faults.PLANTS if bug == "a lock")
    attempt(campaign, faults.planted("a lock", faults.MATRIX))
    assert [line for line in campaign.findings if "it ends with 0" in line]
    assert not campaign.survived
