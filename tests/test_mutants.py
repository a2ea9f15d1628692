"""What the campaign `mutants` says of a run whose time is over."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "campaign"))
for needed in ("tree_sitter", "coverage"):
    pytest.importorskip(needed, reason="not run: `nox -s mutants` installs what it needs")
import mutant_survey
import mutants
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
    seconds={"t": 1.0}, mutants={}, lines={("lltm/stream.py", n): ("t",) for n in CHOSEN}
)
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
