"""A new torch is one line of matrix.toml: whoever names torches follows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from torchproof.conda import settings, variants
from torchproof.report import readme
from torchproof.rows.plan import expand
from torchproof.rows.row_rules import violations

from torchproof import config, copies, made
from torchproof import matrix as command

if TYPE_CHECKING:
    from pathlib import Path

TEXT = config.PATH.read_text(encoding="utf-8")
LINE = (
    'torch = [ { version = "2.16.0", pythons = ["3.11", "3.12", "3.13", "3.14", "3.15"], '
    'freethreaded = ["3.14t"], cxx = 20, cuda = "13.2" } ]\n'
)


@pytest.fixture
def text() -> str:
    """The project's file with a made-up torch that torchproof does not know yet."""
    return TEXT.replace("stable = {", f"{LINE}stable = {{", 1)


@pytest.fixture
def matrix(text: str) -> config.Matrix:
    return config.loads(text)


def test_no_rule_breaks(matrix: config.Matrix) -> None:
    assert violations(matrix) == ()


@pytest.mark.parametrize("tier", ["pr", "nightly", "release"])
def test_each_wide_tier_proves_it(matrix: config.Matrix, tier: str) -> None:
    rows = [row for row in expand(matrix, tier) if row.torch == "2.16.0"]
    assert {row.binding for row in rows} == {"stable", "native"}
    assert any(row.packages == "real" for row in rows)


def test_the_newest_rows_move_on_and_no_torch_is_dropped(matrix: config.Matrix) -> None:
    before = {row.torch for row in expand(config.load(), "pr")}
    assert {row.torch for row in expand(matrix, "pr")} == {*before, "2.16.0"}


def test_nox_lists_it_for_people_and_workflows(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(config.load, "__defaults__", (path,))
    assert command.main(["--list", "--json", "--tier", "pr"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "2.16.0" in {row["torch"] for row in listed}


def test_the_readme_names_it(matrix: config.Matrix) -> None:
    assert "| 2.16 | — | not run | not run | not run |" in readme.tables(matrix, ())


def test_the_recipe_builds_its_variant(matrix: config.Matrix) -> None:
    assert "2.16" in variants.variants(matrix, settings.load())["pytorch"]


def test_what_is_committed_is_what_matrix_toml_makes() -> None:
    assert [line for maker in made.makers() for line in maker.check()] == []


@pytest.mark.parametrize("text", ["another", None])
def test_a_copy_that_differs_from_its_original_is_named_and_written_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    (copy, *_) = config.load().copies
    differing = tmp_path / copy.path
    differing.parent.mkdir(parents=True)
    if text is not None:
        differing.write_text(text)
    matrix = config.load()
    monkeypatch.setattr(config, "load", lambda: matrix)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    (finding,) = copies.check()
    assert finding.startswith(f"{copy.path}: is not the file")
    copies.write()
    assert copies.check() == ()


def test_a_readme_that_has_drifted_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drifted = tmp_path / "README.md"
    drifted.write_text(readme.PATH.read_text(encoding="utf-8").replace("| 2.10 |", "| 2.01 |"))
    monkeypatch.setattr(readme, "PATH", drifted)
    (finding,) = readme.check()
    assert "`torchproof run --write`" in finding
    readme.write()
    assert readme.check() == ()
