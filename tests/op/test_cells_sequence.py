"""``lltm.cells.Sequence`` against loops over its step, with and without resets."""

from __future__ import annotations

import pytest
import torch
from cells_cases import CELLS, EACH_CELL, assert_equal
from torch import Tensor

import lltm
from lltm import cells

F64 = torch.float64


def loop(rnn: cells.Sequence, x: Tensor, states: list[Tensor], reset: Tensor | None = None):
    """One layer, step by step, from the parameters' documented layout alone."""
    cell, size = rnn.cell, rnn.state_size
    width = size // cell.heads
    weight, bias = rnn.weight_l0, rnn.bias_l0
    recurrent = weight.new_zeros(cell.gates * size, size)
    for gate in range(cell.gates):
        for head in range(cell.heads):
            at = slice(head * width, (head + 1) * width)
            rows = slice(gate * size + head * width, gate * size + (head + 1) * width)
            recurrent[rows, at] = weight[rows, :width]
    halves = bias.chunk(2) if cell.split else (bias, 0.0)
    outputs = []
    for t in range(x.shape[0]):
        if reset is not None:
            states = [state * ~reset[t].unsqueeze(1) for state in states]
        z_input = (x[t] @ weight[:, width:].T + halves[0]).chunk(cell.gates, 1)
        z_recurrent = (states[0] @ recurrent.T + halves[1]).chunk(cell.gates, 1)
        if cell.split:
            new = cell.step(z_input, z_recurrent, tuple(states))
        else:
            z = tuple(a + b for a, b in zip(z_input, z_recurrent, strict=True))
            new = cell.step(z, tuple(states))
        states = list(new)
        outputs.append(states[0])
    return torch.stack(outputs), tuple(state.unsqueeze(0) for state in states)


def drawn(name: str) -> tuple[cells.Sequence, Tensor, list[Tensor]]:
    """A layer of the cell, an input of 6 steps and 4 rows, and the states before it."""
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8, dtype=F64)
    x = torch.randn(6, 4, 3, dtype=F64)
    return rnn, x, [torch.rand(4, 8, dtype=F64) for _ in range(rnn.cell.states)]


@EACH_CELL
def test_a_sequence_is_the_step_over_time(name: str) -> None:
    rnn, x, states = drawn(name)
    actual = rnn(x, tuple(state.unsqueeze(0) for state in states))
    expected = loop(rnn, x, states)
    assert_equal(actual, expected)
    parameters = list(rnn.parameters())
    found = torch.autograd.grad(actual[0].sin().sum() + actual[1][-1].sum(), parameters)
    wanted = torch.autograd.grad(expected[0].sin().sum() + expected[1][-1].sum(), parameters)
    assert_equal(found, wanted)


def test_the_lltm_is_that_of_the_wheel() -> None:
    torch.manual_seed(0)
    ours = cells.LLTM(3, 8, num_layers=2, bidirectional=True, dtype=F64, alpha=0.5)
    theirs = lltm.LLTMSequence(3, 8, 2, bidirectional=True, dtype=F64, alpha=0.5)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(6, 4, 3, dtype=F64)
    assert_equal(ours(x), theirs(x))


@EACH_CELL
def test_reset_begins_an_episode(name: str) -> None:
    rnn, x, states = drawn(name)
    reset = torch.rand(6, 4) < 0.4
    actual = rnn(x, tuple(state.unsqueeze(0) for state in states), reset=reset)
    assert_equal(actual, loop(rnn, x, states, reset))


@pytest.mark.parametrize("batch_first", [False, True])
def test_reset_cuts_both_directions_at_the_same_place(batch_first: bool) -> None:
    torch.manual_seed(0)
    rnn = cells.LSTM(3, 4, 2, bidirectional=True, batch_first=batch_first, dtype=F64)
    x = torch.randn(7, 2, 3, dtype=F64)
    start = tuple(torch.randn(4, 2, 4, dtype=F64) for _ in range(2))
    reset = torch.zeros(7, 2, dtype=torch.bool)
    reset[3] = True
    given = (x.transpose(0, 1), reset.T) if batch_first else (x, reset)
    output, _ = rnn(given[0], start, reset=given[1], reset_state=start)
    output = output.transpose(0, 1) if batch_first else output
    rnn.batch_first = False
    single = cells.Sequence(rnn.cell, 3, 4, bidirectional=True, dtype=F64)
    torchs = rnn.state_dict()
    for suffix in ("_l0", "_l0_reverse"):
        of_input, of_state = (torchs[f"{kind}{suffix}"] for kind in ("weight_ih", "weight_hh"))
        bias = torchs[f"bias_ih{suffix}"] + torchs[f"bias_hh{suffix}"]
        own = {f"weight{suffix}": torch.cat((of_state, of_input), 1), f"bias{suffix}": bias}
        single.load_state_dict(own, strict=False)
    first = tuple(state[:2] for state in start)
    whole, _ = single(x, first, reset=reset, reset_state=first)
    parts = [single(part, first)[0] for part in (x[:3], x[3:])]
    assert_equal(whole, torch.cat(parts))
    assert output.shape == (7, 2, 8)


def test_reset_state_and_gradients() -> None:
    torch.manual_seed(0)
    rnn = cells.GRU(3, 4, dtype=F64)
    x = torch.randn(5, 2, 3, dtype=F64, requires_grad=True)
    start = torch.randn(1, 2, 4, dtype=F64, requires_grad=True)
    h0 = torch.randn(1, 2, 4, dtype=F64, requires_grad=True)
    reset = torch.zeros(5, 2, dtype=torch.bool)
    reset[2, 0] = True
    output, _ = rnn(x, h0, reset=reset, reset_state=start)
    d_x, d_h0, d_start = torch.autograd.grad(output[2:, 0].sum(), (x, h0, start))
    assert not d_h0.any()
    assert not d_x[:2].any()
    assert d_start[0, 0].all()
    assert not d_start[0, 1].any()
