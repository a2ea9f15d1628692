"""A cell is as predicted only when the package and the bare loader did what the verdict means."""

from __future__ import annotations

import pytest
from torchproof.crossload import ABORTS, LOADS, REFUSES, WRONG, GridCell, Outcome


def cell(predicted: str, package: str, loader: str) -> GridCell:
    return GridCell("2.13.0", predicted, "", Outcome(package, ""), Outcome(loader, ""))


@pytest.mark.parametrize(
    ("predicted", "package", "loader"),
    [
        ("loads", LOADS, LOADS),
        ("fails", REFUSES, REFUSES),
        ("unsafe", REFUSES, ABORTS),
        ("unsafe", REFUSES, WRONG),
        ("unsafe", REFUSES, LOADS),
    ],
)
def test_as_predicted(predicted: str, package: str, loader: str) -> None:
    assert cell(predicted, package, loader).as_predicted


@pytest.mark.parametrize(
    ("predicted", "package", "loader"),
    [
        ("loads", REFUSES, LOADS),
        ("loads", LOADS, WRONG),
        ("loads", ABORTS, LOADS),
        ("fails", REFUSES, LOADS),
        ("fails", ABORTS, REFUSES),
        ("fails", REFUSES, ABORTS),
        ("unsafe", ABORTS, ABORTS),
        ("unsafe", LOADS, LOADS),
        ("unsafe", REFUSES, REFUSES),
    ],
)
def test_not_as_predicted(predicted: str, package: str, loader: str) -> None:
    assert not cell(predicted, package, loader).as_predicted
