"""A square is as foretold only when the package and the bare loader did what the verdict means."""

from __future__ import annotations

import pytest
from torchproof.crossload import ABORTS, LOADS, REFUSES, WRONG, Happening, Square


def square(foretold: str, package: str, loader: str) -> Square:
    return Square("2.13.0", foretold, "", Happening(package, ""), Happening(loader, ""))


@pytest.mark.parametrize(
    ("foretold", "package", "loader"),
    [
        ("loads", LOADS, LOADS),
        ("fails", REFUSES, REFUSES),
        ("unsafe", REFUSES, ABORTS),
        ("unsafe", REFUSES, WRONG),
        ("unsafe", REFUSES, LOADS),
    ],
)
def test_as_foretold(foretold: str, package: str, loader: str) -> None:
    assert square(foretold, package, loader).as_foretold


@pytest.mark.parametrize(
    ("foretold", "package", "loader"),
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
def test_not_as_foretold(foretold: str, package: str, loader: str) -> None:
    assert not square(foretold, package, loader).as_foretold
