"""Which tests the campaign `sanitize` runs, and what it makes of how they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import sanitize

FILES = {path.stem for path in (Path(__file__).parents[1] / "op").glob("test_*.py")}


def test_every_file_of_the_ops_tests_is_run_or_left_out_with_a_reason() -> None:
    for variant in sanitize.VARIANTS:
        if variant.flags.startswith("address"):
            assert {*variant.tests, *sanitize.LEFT_OUT} == FILES
    assert all(sanitize.LEFT_OUT.values())


def test_what_is_planted_is_met_by_a_test_that_is_run() -> None:
    assert all(variant.plant.test in variant.tests for variant in sanitize.VARIANTS)


@pytest.mark.parametrize(
    ("status", "output", "outcome"),
    [
        (0, "12 passed, 3 skipped in 4.00s", ""),
        (1, "1 failed, 12 passed in 4.00s", "failed with 1"),
        (66, "WARNING: ThreadSanitizer: data race", "failed with 66"),
        (-6, "12 passed", "failed with -6"),
        (0, "3 skipped in 0.10s", sanitize.ALL_SKIPPED),
        (5, "31 deselected in 0.10s", sanitize.NONE_SELECTED),
        (124, "....", sanitize.NO_TIME),
    ],
)
def test_what_did_not_run_is_neither_passed_nor_failed(
    status: int, output: str, outcome: str
) -> None:
    assert sanitize.judge(status, output) == outcome
