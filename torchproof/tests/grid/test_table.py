"""The table, the page and its picture: what was predicted beside what happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torchproof.grid import __main__ as command
from torchproof.grid import released, released_page
from torchproof.grid.crossload import Grid, Line
from torchproof.grid.table import details, markdown
from torchproof.grid.trials import (
    FAILS,
    LOADS,
    REFUSES,
    WORKS,
    WRONG,
    GridCell,
    LibraryTrial,
    PackageTrial,
)
from torchproof.grid.wheel_file import Wheel
from torchproof.machine.environments import Environment
from wheels import make_wheel

if TYPE_CHECKING:
    pass


def grid(tmp_path: Path) -> Grid:
    """Two torches; the library loads in one, against the other tool's prediction in the other."""
    wheel = Wheel(make_wheel(tmp_path, "decay", ""), "decay==1", (), "==2.13.0", "import decay")
    cells = (
        GridCell(
            "2.10.0",
            (LibraryTrial(FAILS, "no libcudart.so.13", REFUSES, "x", "decay/_C.so", LOADS),),
            PackageTrial(FAILS, "no libcudart.so.13", REFUSES, "OSError: x"),
        ),
        GridCell(
            "2.13.0",
            (LibraryTrial(LOADS, "every symbol is there", LOADS, "", "decay/_C.so", LOADS),),
            PackageTrial(WORKS, "every symbol is there", WRONG, "ValueError: 0.25"),
        ),
    )
    environments = {
        torch: Environment(tmp_path, found, "3.11.7", flavour)
        for torch, found, flavour in (
            ("2.10.0", "2.10.0", "stubbed"),
            ("2.13.0", "2.13.0+cpu", "cpu"),
        )
    }
    return Grid(environments, (Line(wheel, "0" * 64, cells),))


def test_a_table_marks_what_was_not_predicted(tmp_path: Path) -> None:
    shown = markdown(grid(tmp_path))
    assert "| `decay==1` | refuses | **" in shown
    assert "**wrong; 1 of 1 libraries load; not as predicted**" in shown


def test_the_terminal_gives_the_reason_of_what_was_not_predicted_alone(tmp_path: Path) -> None:
    (line,) = grid(tmp_path).lines
    assert details(line).plain.splitlines() == [
        "decay==1 in torch 2.10.0: refuses",
        "decay==1 in torch 2.13.0: wrong; 1 of 1 libraries load; not as predicted",
        "  the package: predicted works, every symbol is there",
        "  found: wrong ValueError: 0.25",
    ]


def test_a_grid_that_is_not_as_predicted_fails_the_command_and_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.GridSession, "run", lambda _: (grid(tmp_path), []))
    page = tmp_path / "page.md"
    (tmp_path / "given").mkdir()
    wheel = make_wheel(tmp_path / "given", "decay", "")
    assert command.main([str(wheel), "--write", str(page)]) == 1
    assert "2 cells, 1 not as predicted, 0 not run, 0 wheels" in capsys.readouterr().out
    assert f"torchproof grid {wheel} --write {page}" in page.read_text()


def test_a_page_has_its_picture_its_data_and_who_was_right(tmp_path: Path) -> None:
    path = tmp_path / "what-loads-where.md"
    absent = released.Absent("growth", "nobody has released it", 1)
    heading = released_page.Heading("What loads where", "Wheels", "torchproof grid list.toml")
    released_page.write(path, grid(tmp_path), [absent], heading)
    page = path.read_text()
    assert "2 cells on CPython 3.11.7, in which 4 libraries and\npackages were tried, 1 not" in page
    assert "| decay==1 | `_C.so` | 2.10.0 | loads | fails: no libcudart.so.13 | refuses |" in page
    assert "- growth: nobody has released it" in page
    assert "](what-loads-where.svg)" in page
    assert path.with_suffix(".svg").read_text().count("<rect") == 1 + 2
    data = json.loads(path.with_suffix(".json").read_text())
    assert [cell["as_predicted"] for cell in data["wheels"][0]["cells"]] == [True, False]


def test_a_page_shows_that_a_message_goes_on_and_quotes_its_backticks(tmp_path: Path) -> None:
    path, heading = tmp_path / "a.md", released_page.Heading("A title", "Wheels", "torchproof grid")
    (line,) = grid(tmp_path).lines
    package = replace(line.cells[0].package, message=f"run `pip install decay`: {'x' * 200}")
    cells = (replace(line.cells[0], package=package),)
    found = replace(grid(tmp_path), lines=(replace(line, cells=cells),))
    released_page.write(path, found, [], heading)
    assert f"(`` run `pip install decay`: {'x' * 135}... ``)" in path.read_text()


def test_a_page_is_made_again_of_its_data(tmp_path: Path) -> None:
    path, heading = tmp_path / "a.md", released_page.Heading("A title", "Wheels", "torchproof grid")
    absent = released.Absent("growth", "nobody has released it", 1)
    released_page.write(path, grid(tmp_path), [absent], heading)
    assert released_page.differing(path) == []
    path.write_text(path.read_text().replace("refuses", "works"))
    assert released_page.differing(path) == [str(path)]
    path.with_suffix(".svg").unlink()
    assert released_page.differing(path) == [str(path), str(path.with_suffix(".svg"))]
