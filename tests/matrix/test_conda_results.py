"""The session's tables and their JSON: what failed is failed, what did not run is not passed."""

from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console

from matrix.conda.results import (
    FAILED,
    NOT_RUN,
    PASSED,
    EnvironmentResult,
    PackageResult,
    ProofResult,
    RenderedResult,
    Results,
    tables,
)

PACKAGE = PackageResult(
    "lltm", "cpu_h1_0", "lltm.conda", "00", 12.5, 245_000, 64, (PASSED, PASSED), PASSED
)
ENVIRONMENT = EnvironmentResult(
    "torch 2.13 + Python 3.11", "2.13.0", "3.11.7", "cpu_h1_0", 30, 0.1, 2.9, 60.0, 9, 0, 1, PASSED
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
        RenderedResult("linux-64", "lltm", "cpu_h1_0", built=True),
        RenderedResult("win-64", "lltm", "cpu_h2_0", built=False),
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
    assert rows == {"linux-64": ["lltm", "cpu", "none"], "win-64": ["none", "lltm", "cpu"]}


def test_json_is_the_tables_twin() -> None:
    told = json.loads(json.dumps(RESULTS.to_json()))
    assert told["ok"] is True
    assert told["packages"][0]["bytes"] == PACKAGE.bytes
    assert told["environments"][0]["passed"] == ENVIRONMENT.passed


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
