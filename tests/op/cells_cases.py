"""The cells under test: the shipped ones, and some with what those do not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lltm import cells
from lltm.cells import formulas


def decaying(
    z_input: Sequence[Tensor], z_recurrent: Sequence[Tensor], state, *, rate=0.5, floor=0.1
):
    """Split, with a gate to spare, two states, two scalars and arithmetic between them."""
    gate = torch.sigmoid(z_input[0] + z_recurrent[0])
    h, trace = state
    trace = (1 - rate) * trace + rate * gate * torch.tanh(z_input[1])
    return torch.where(gate > floor, torch.tanh(trace + z_recurrent[1]), h), trace


DECAYING = cells.define(decaying, gates=2, states=2, split=True)
HEADS = dataclasses.replace(formulas.SLSTM, heads=2)
CELLS = {cell.name: cell for cell in (*formulas.SHIPPED, DECAYING)} | {"slstm_heads": HEADS}
EACH_CELL = pytest.mark.parametrize("name", CELLS)


def assert_equal(actual: object, expected: object) -> None:
    """Equal in float64, but for the order of sums."""
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)
