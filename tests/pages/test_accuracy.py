"""The page on accuracy states the bounds that the tests check."""

from __future__ import annotations

from pathlib import Path

import bounds
from cases import BENCHMARK_CASES

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_page_has_the_bounds_that_are_tested() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert bounds.table(BENCHMARK_CASES) in page, bounds.table(BENCHMARK_CASES)
    assert f"min(n, {bounds.BLOCK}) + n / {bounds.SHORTEST_BLOCK} + 8" in page
    assert f"{bounds.MATHS:g} ulp" in page
