from __future__ import annotations

import json

import torch

from lltm import cells


def test_both_cells_learn(run, tmp_path):
    output = run("two_cells", "--steps", "80", "--state-size", "32")
    assert "sLSTM: loss" in output
    losses = json.loads((tmp_path / "two_cells_output" / "loss.json").read_text())
    assert set(losses) == {"sLSTM", "leaky"}
    for values in losses.values():
        assert values[-1] < 0.7 * values[0]
    assert (tmp_path / "two_cells_output" / "loss.svg").read_text().startswith("<?xml")


def test_the_step_is_the_cell(load):
    example = load("two_cells")
    torch.manual_seed(0)
    step = cells.Cell(example.LEAKY, 3, 4, floor=0.25)
    x, h = torch.randn(2, 3), torch.randn(2, 4)
    forget, candidate = (torch.cat([h, x], 1) @ step.weights.T + step.bias).chunk(2, 1)
    rate = 0.25 + 0.75 * forget.sigmoid()
    torch.testing.assert_close(step(x, (h,))[0], h + rate * (candidate.tanh() - h))
