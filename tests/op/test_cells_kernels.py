"""The compiled kernels of every cell, put through the checks of ``lltm.cells.prove``."""

from __future__ import annotations

import pytest
import torch
from cells_cases import CELLS

from lltm import cells
from lltm._compile import unavailable_reason
from lltm.cells import _kernels, _prove, formulas
from lltm.cells._prove import CHECKS, CheckError, equals_the_step

pytestmark = pytest.mark.subprocess


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    if reason := unavailable_reason():
        pytest.skip(f"not run: {reason}")
    assert all(cells.prepare(cell) for cell in CELLS.values())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", CELLS)
def test_kernels(name: str, check: str) -> None:
    CHECKS[check](CELLS[name])


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    relu, tanh = formulas.RNN_RELU, formulas.RNN_TANH
    monkeypatch.setattr(_kernels, "_of_definitions", {relu: _kernels.namespace(tanh)})
    with pytest.raises(CheckError, match=r"an error of \S+ eps, eager has 0.0"):
        equals_the_step(relu, dtype=torch.float64, reset=False)


def test_prove_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    proof = cells.prove(CELLS["gru"])
    assert proof.passed
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert lines[-1] == f"gru: {len(CHECKS)} of {len(CHECKS)} checks passed"
    assert any("bfloat16" in line and "eager" in line and "passed" in line for line in lines)


def test_prove_of_a_cell_without_kernels_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_kernels, "_of_definitions", {CELLS["gru"]: None})
    checks = {name: CHECKS[name] for name in ("memory layouts", "torch.library.opcheck")}
    monkeypatch.setattr(_prove, "CHECKS", checks)
    proof = cells.prove(CELLS["gru"])
    assert not proof.passed
    layouts, opcheck, end = capsys.readouterr().out.splitlines()
    assert "passed" in layouts
    assert opcheck.endswith("the cell has no kernels")
    assert "FAILED" in opcheck
    assert end == "gru: 1 of 2 checks passed; there are NO KERNELS, the reference was checked"
