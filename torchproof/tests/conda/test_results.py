"""The session's tables and their JSON: what failed is failed, what did not run is not passed."""

from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console
from torchproof.conda.package_proofs import summed
from torchproof.conda.summary import (
    EnvironmentResult,
    PackageResult,
    ProofResult,
    RenderedResult,
    Results,
    tables,
)
from torchproof.rows.results import FAILED, NOT_RUN, PASSED

PACKAGE = PackageResult(
    "decay", "cpu_h1_0", "decay.conda", "00", 12.5, 245_000, 64, (PASSED, PASSED), PASSED
)
ENVIRONMENT = EnvironmentResult(
    name="torch 2.13 + Python 3.11",
    torch="2.13.0",
    python="3.11.7",
    suite="full",
    build="cpu_h1_0",
    packages=30,
    solve_seconds=0.1,
    install_seconds=2.9,
    test_seconds=60.0,
    passed=9,
    failed=0,
    skipped=1,
    status=PASSED,
)
RESULTS = Results(
    tool="py-rattler-build",
    channel_bytes=1,
    channel_packages=2,
    seconds=3.0,
    packages=(PACKAGE,),
    environments=(ENVIRONMENT,),
    proofs=(ProofResult("two builds are identical", PASSED, 1.0),),
    rendered=(
        RenderedResult("linux-64", "decay", "cpu_h1_0", built=True),
        RenderedResult("win-64", "decay", "cpu_h2_0", built=False),
    ),
)


def printed(results: Results) -> str:
    console = Console(file=io.StringIO(), width=200)
    for table in tables(results):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_tables_say_what_was_shown() -> None:
    text = printed(RESULTS)
    for part in ("2/2 passed", "245", "9 passed, 0 failed, 1 skipped", "two builds are identical"):
        assert part in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if "-64" in line}
    assert rows == {"linux-64": ["decay", "cpu", "none"], "win-64": ["none", "decay", "cpu"]}


def test_a_package_that_runs_nothing_is_not_said_to_have_run_something() -> None:
    bare = dataclasses.replace(PACKAGE, tests=())
    text = printed(dataclasses.replace(RESULTS, packages=(bare,)))
    assert "of its contents passed" in text
    assert "0/0" not in text


def test_what_is_kept_from_an_earlier_run_says_so() -> None:
    kept = dataclasses.replace(ENVIRONMENT, kept=True)
    assert "60.0" in printed(RESULTS)
    text = printed(dataclasses.replace(RESULTS, environments=(kept,)))
    assert "kept" in text
    assert "60.0" not in text


def test_json_is_the_tables_twin() -> None:
    document = json.loads(json.dumps(RESULTS.to_json()))
    assert document["ok"] is True
    assert document["packages"][0]["bytes"] == PACKAGE.bytes
    assert document["environments"][0]["passed"] == ENVIRONMENT.passed


def test_one_failure_fails_the_session() -> None:
    broken = (
        dataclasses.replace(RESULTS, packages=(dataclasses.replace(PACKAGE, audit=FAILED),)),
        dataclasses.replace(
            RESULTS, packages=(dataclasses.replace(PACKAGE, tests=(PASSED, FAILED)),)
        ),
        dataclasses.replace(RESULTS, proofs=(ProofResult("x", FAILED, 0.0),)),
        dataclasses.replace(
            RESULTS, environments=(dataclasses.replace(ENVIRONMENT, status=FAILED),)
        ),
    )
    assert [results.ok for results in broken] == [False] * 4


def test_a_session_that_showed_nothing_has_not_passed() -> None:
    assert not dataclasses.replace(RESULTS, environments=(), proofs=()).ok
    assert not dataclasses.replace(RESULTS, packages=()).ok


def test_a_proof_that_did_not_run_is_told_with_its_reason() -> None:
    skipped = ProofResult("two Pythons", NOT_RUN, 0.0, "this machine has one CPython")
    assert "not run: this machine has one CPython" in printed(
        dataclasses.replace(RESULTS, proofs=(skipped,))
    )


def test_many_cases_are_one_row_that_is_no_better_than_its_worst() -> None:
    good, bad = ProofResult("a", PASSED, 1.0), ProofResult("b", FAILED, 2.0, "wrong")
    skipped = ProofResult("c", NOT_RUN, 0.0, "no driver")
    assert summed("x", [good, good]) == ProofResult("x: 2 cases", PASSED, 2.0)
    assert summed("x", [good, skipped, bad]).status == FAILED
    assert summed("x", [good, bad]).reason == "b: wrong"
    assert summed("x", [good, skipped]).status == NOT_RUN
