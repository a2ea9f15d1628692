"""``python -m lltm.cells functor``: the C++ of a cell, that of the LLTM's kernels included."""

from __future__ import annotations

from pathlib import Path

import pytest

from lltm.cells.__main__ import main

ROOT = Path(__file__).parents[1]
FORMULAS = ROOT / "lltm" / "cells" / "formulas.py"


def test_the_kernels_of_the_lltm_are_made_from_its_formula(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["functor", f"{FORMULAS}:LLTM"]) == 0
    assert capsys.readouterr().out == (ROOT / "csrc" / "lltm_cell.inc").read_text(encoding="utf-8")


def test_no_cell_of_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["functor", f"{FORMULAS}:NONE"]) == 1
    assert "python -m lltm.cells functor: NONE in " in capsys.readouterr().err
