"""What the campaign `mutants` says of a run whose time is over."""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

for needed in ("tree_sitter", "coverage"):
    pytest.importorskip(needed, reason="not run: `nox -s mutants` installs what it needs")
import mutant_survey
import mutants
from mutant_choice import PARTS, explained, mutants_of
from mutant_runs import Suite
from mutant_trials import Kept, run
from mutations import Mutant

OVER = 0.0
"""A time on the monotonic clock that has passed."""


def mutant(line: int) -> Mutant:
    return Mutant(
        file="lltm/stream.py",
        function="f",
        line=line,
        text="a + b",
        start=0,
        end=5,
        old="a + b",
        new=f"a - {line}",
        statement=False,
    )


CHOSEN = {number: mutant(number) for number in range(4)}
TESTS = mutant_survey.Tests(
    suite=Suite(Path(), ("t",), ("t",)),
    seconds={"t": 1.0},
    mutants={},
    lines={("lltm/stream.py", n): ("t",) for n in CHOSEN},
)
FIRST = next(mutants_of(PARTS["audit"]))
# Of no other run of the campaign in this tree.
NUMBER = 1_000_000
OPTIONS = argparse.Namespace(seed=7, minutes=3.0)


def test_what_there_is_no_time_for_is_counted_and_neither_killed_nor_a_finding(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, resume=False)
    kept.add(CHOSEN[0], "killed")
    run(CHOSEN, {"op": TESTS}, kept, end=OVER, jobs=2)
    record = mutants.record(OPTIONS, CHOSEN, kept)
    assert record.cases == 1
    assert record.findings == ()
    assert record.not_run == ("3 of 4 mutants: no time left",)
    assert record.figures["killed (%)"] == 100.0


def test_a_survivor_without_a_reason_is_a_finding(tmp_path: Path) -> None:
    kept = Kept(tmp_path, resume=False)
    for number, outcome in enumerate(("killed", "survived all", "killed", "unreached all")):
        kept.add(CHOSEN[number], outcome)
    record = mutants.record(OPTIONS, CHOSEN, kept)
    assert record.findings == (
        f"survived all: {CHOSEN[1].name}",
        f"unreached all: {CHOSEN[3].name}",
        "50.0 % of the mutants die, at least 95 % must",
    )


def test_outcomes_are_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    Kept(tmp_path, resume=False).add(CHOSEN[2], "killed")
    assert Kept(tmp_path, resume=True).outcomes == {CHOSEN[2].name: "killed"}
    assert Kept(tmp_path, resume=False).outcomes == {}


def test_outcomes_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path, resume=False)
    many = [mutant(line) for line in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: kept.add(each, "killed"), many))
    assert Kept(tmp_path, resume=True).outcomes == {each.name: "killed" for each in many}


def whole_suite(folder: Path, body: str) -> mutant_survey.Tests:
    """A suite of one file, whose tests reach no mutant."""
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_whole.py").write_text(body)
    return mutant_survey.Tests(Suite(folder, (), ("tests",)), {}, {}, {})


def outcome(folder: Path, body: str) -> tuple[str, Kept]:
    """What a suite makes of a mutant that no surveyed test reaches."""
    kept = Kept(folder, resume=False)
    run({NUMBER: FIRST}, {"audit": whole_suite(folder, body)}, kept, end=math.inf, jobs=1)
    return kept.outcomes[FIRST.name], kept


FAILS_ALWAYS = """
def test_that_passes(): pass
def test_that_fails_always(): assert False
"""
FAILS_ON_A_MUTANT = """
import os
def test_that_notices(): assert os.environ["LLTM_MUTANT"] == "-1"
"""
FAILS_IN_COMPANY = """
ran = []
def test_that_passes(): ran.append(1)
def test_that_fails_after_another(): assert not ran
"""


def test_what_fails_without_a_mutant_kills_none_and_is_named(tmp_path: Path) -> None:
    found, kept = outcome(tmp_path, FAILS_ALWAYS)
    assert found == "unreached all"
    record = mutants.record(OPTIONS, {NUMBER: FIRST}, kept)
    test = "tests/test_whole.py::test_that_fails_always"
    assert record.not_run == (f"left out: {test}: it fails without a mutant",)
    again = Kept(tmp_path, resume=True)
    assert again.broken == {test: "audit"}


def test_the_whole_suite_goes_on_after_what_fails_without_a_mutant(tmp_path: Path) -> None:
    assert outcome(tmp_path, FAILS_ALWAYS + FAILS_ON_A_MUTANT)[0] == "killed"


def test_what_fails_only_after_another_test_kills_none(tmp_path: Path) -> None:
    assert outcome(tmp_path, FAILS_IN_COMPANY)[0] == "unreached all"


def test_a_suite_that_a_mutant_keeps_from_being_imported_kills_it(tmp_path: Path) -> None:
    body = "import os\nassert os.environ['LLTM_MUTANT'] == '-1'\ndef test_it(): pass\n"
    assert outcome(tmp_path, body)[0] == "killed"


def test_a_test_that_ends_the_process_kills_a_mutant(tmp_path: Path) -> None:
    body = "import os\ndef test_it():\n  if os.environ['LLTM_MUTANT'] != '-1': os.abort()\n"
    assert outcome(tmp_path, body)[0] == "killed"


def test_every_reason_is_of_a_mutant_that_there_is() -> None:
    names = {mutant.name for part in PARTS.values() for mutant in mutants_of(part)}
    assert explained().keys() <= names
