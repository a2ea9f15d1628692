"""``python -m lltm.cells functor``: the C++ of a cell, that of the LLTM's kernels included."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_support import cells
from lltm.cells import formulas
from lltm.cells.__main__ import main
from lltm.cells._functor import functor

ROOT = Path(__file__).parents[1]
FORMULAS = ROOT / "lltm" / "cells" / "formulas.py"


@pytest.mark.parametrize("name", ["lltm", *cells.CARRIED])
def test_the_kernels_of_the_wheel_are_made_from_the_formula(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    carried = {"lltm": cells.LLTM} | cells.carried()
    assert main(["functor", f"{FORMULAS}:{name.upper()}"]) == 0
    assert capsys.readouterr().out == carried[name].text


@pytest.mark.parametrize("name", ["lltm", *cells.CARRIED])
def test_the_build_names_the_ops_as_the_package_looks_for_them(name: str) -> None:
    carried = {"lltm": cells.LLTM} | cells.carried()
    assert carried[name].namespace == functor(getattr(formulas, name.upper())).namespace


def test_no_cell_of_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["functor", f"{FORMULAS}:NONE"]) == 1
    assert "python -m lltm.cells functor: NONE in " in capsys.readouterr().err
