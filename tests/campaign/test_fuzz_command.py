"""What the campaign `fuzz` makes of a target that ran nothing."""

from __future__ import annotations

import fuzz

LOG = "\n".join(f"search {number} 300 100" for number in range(fuzz.SEARCHES))
STATS = "stat::number_of_executed_units: 812\n"


def test_what_ran_and_found_nothing_has_no_findings() -> None:
    assert fuzz.read_by("elf", 0, STATS) == fuzz.Fuzzed("elf", 812, ())
    every = fuzz.searched(0, LOG)
    assert every.findings == ()
    assert (every.cases, every.accepted) == (300 * fuzz.SEARCHES, 100 * fuzz.SEARCHES)


def test_a_reader_that_ran_no_case_is_a_finding() -> None:
    for output in ("", STATS.replace("812", "0")):
        assert fuzz.read_by("elf", 0, output).findings == ("elf: no case was run",)


def test_a_search_that_is_missing_or_ran_no_case_is_a_finding() -> None:
    _, *rest = LOG.splitlines()
    assert fuzz.searched(0, "\n".join(rest)).findings == (
        f"ops: {fuzz.SEARCHES - 1} of {fuzz.SEARCHES} searches ran",
    )
    empty = fuzz.searched(0, "\n".join(["pack 0 0", *rest]))
    assert empty.findings == ("ops: no case of pack was run",)
    refused = fuzz.searched(0, "\n".join(["pack 300 0", *rest]))
    assert refused.findings == ("ops: no case of pack was accepted",)
    assert fuzz.searched(0, "\n".join(["cell arbitrary 300 0", *rest])).findings == ()


def test_a_short_budget_gives_every_target_a_second() -> None:
    assert fuzz.share(0.01) == 1
    assert fuzz.share(10.0) == 150
