"""The pages of grids that were run: made of the data beside them, every cell as predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchproof.grid import released_page
from torchproof.grid.crossload import Grid

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / "crossload.md",
    ROOT / "docs" / "what-loads-where.md",
    *sorted(ROOT.glob("torchproof/examples/*/result.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_what_its_data_makes(page: Path) -> None:
    assert released_page.differing(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_cell_was_run_and_came_out_as_predicted(page: Path) -> None:
    grid = Grid.from_dict(json.loads(page.with_suffix(".json").read_text(encoding="utf-8")))
    assert grid.cells
    assert [cell for cell in grid.cells if not (cell.run and cell.as_predicted)] == []
