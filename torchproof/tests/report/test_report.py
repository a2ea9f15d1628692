"""A report that another session adds to, of rows and a grid that are whole or damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torchproof.report import run_report
from torchproof.report.page import sample
from torchproof.rows import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a grid, rows, and their report without the last row."""
    sample.write(tmp_path)
    rows = sample.results()
    for row in rows:
        results.write(tmp_path / "rows", row)
    run_report.write(tmp_path, "pr", rows[:-1])
    return tmp_path


def page(folder: Path) -> str:
    run_report.refresh(folder)
    return (folder / "index.html").read_text(encoding="utf-8")


def test_a_page_that_is_made_again_has_the_rows_of_its_report(folder: Path) -> None:
    *rows, other = sample.results()
    text = page(folder)
    assert all(f'id="{row.id}"' in text for row in rows)
    assert f'id="{other.id}"' not in text
    assert "Tier <b>pr</b>" in text


def test_a_page_without_its_report_has_every_row_that_is_kept(folder: Path) -> None:
    (folder / "report.json").unlink()
    assert all(f'id="{row.id}"' in page(folder) for row in sample.results())


def test_no_damage_of_a_report_ends_the_page(
    folder: Path, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    rows = sample.results()[:-1]
    for _ in damages(folder / "report.json", 12):
        text = page(folder)
        assert all(f'id="{row.id}"' in text for row in rows)


def test_no_damage_of_a_grid_ends_the_page(
    folder: Path, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    def grid() -> str:
        return page(folder).partition('id="crossload"')[2].partition("</section>")[0]

    whole = grid()
    assert "<code>torchproof crossload</code> makes this grid" not in whole
    for _ in damages(folder / "grid.json", 12):
        found = grid()
        assert "<code>torchproof crossload</code> makes this grid" in found or found == whole


def test_a_row_that_is_damaged_is_left_out(folder: Path) -> None:
    first, *others = sample.results()[:-1]
    (folder / "rows" / f"{first.id}.json").write_bytes(b"\xff")
    text = page(folder)
    assert f'id="{first.id}"' not in text
    assert all(f'id="{row.id}"' in text for row in others)
