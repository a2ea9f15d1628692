"""``lltm.cells``: cells from their formulas, and the modules around them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import pickle
import re
from pathlib import Path
from types import ModuleType

import cases
import pytest
import torch
from cells_cases import CELLS, DECAYING
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import lltm
from lltm import cells
from lltm.cells import formulas

F64 = torch.float64
EACH_CELL = pytest.mark.parametrize("name", CELLS)


def assert_equal(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


# define -----------------------------------------------------------------------------------------


def test_a_module_shows_what_differs_from_the_defaults() -> None:
    assert cells.LLTM(3, 8).extra_repr() == "lltm, 3, 8"
    changed = cells.LLTM(3, 8, num_layers=2, bidirectional=True, bias=False, alpha=0.5)
    assert (
        changed.extra_repr()
        == "lltm, 3, 8, num_layers=2, bias=False, bidirectional=True, alpha=0.5"
    )


def test_a_step_of_a_module_shows_its_cell_and_sizes() -> None:
    assert repr(cells.Cell(formulas.GRU, 3, 8)) == "Cell(gru, 3, 8)"
    assert repr(cells.Cell(formulas.GRU, 3, 8, bias=False)) == "Cell(gru, 3, 8, bias=False)"


@pytest.mark.parametrize(
    ("module", "cell"),
    [
        (cells.LLTM, formulas.LLTM),
        (cells.PeepholeLSTM, formulas.PEEPHOLE_LSTM),
        (cells.SLSTM, formulas.SLSTM),
    ],
)
def test_a_module_that_torch_has_not_runs_its_cell(
    module: type[cells.Sequence], cell: cells.Definition
) -> None:
    made = module(3, 8)
    assert made.cell == cell
    assert made(torch.zeros(2, 1, 3))[0].shape == (2, 1, 8)


@pytest.mark.parametrize("cell", formulas.SHIPPED, ids=lambda cell: cell.name)
def test_shipped_steps_are_what_define_takes(cell: cells.Definition) -> None:
    made = cells.define(cell.step, gates=cell.gates, states=cell.states, split=cell.split)
    assert made == cell


@pytest.mark.parametrize("scale", [0.0, 0.75])
def test_peepholes_add_the_cell_before_the_gates(scale: float) -> None:
    """Gers and Schmidhuber's equations, one number at a time."""

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    i, f, g, o, h, c = 0.3, -0.7, 1.1, 0.4, 0.2, -0.9
    new_c = sigmoid(f + scale * c) * c + sigmoid(i + scale * c) * math.tanh(g)
    new_h = sigmoid(o + scale * new_c) * math.tanh(new_c)
    z, state = torch.tensor([i, f, g, o], dtype=F64), torch.tensor([h, c], dtype=F64)
    got = formulas.peephole_lstm(tuple(z), tuple(state), scale=scale)
    assert_equal(torch.stack(got), torch.tensor([new_h, new_c], dtype=F64))


def test_the_slstm_is_that_of_its_paper() -> None:
    """Beck et al.'s equations 8 to 13, which have no stabiliser, one number at a time."""

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    steps = [(0.3, -0.7, 1.1, 0.4), (-1.2, 2.0, -0.6, -0.3), (0.8, 0.1, 0.5, 1.7)]
    c = n = 0.0
    got = torch.zeros(4, dtype=F64)
    for i, f, g, o in steps:
        c = sigmoid(f) * c + math.exp(i) * math.tanh(g)
        n = sigmoid(f) * n + math.exp(i)
        z = torch.tensor([i, f, g, o], dtype=F64)
        got = torch.stack(formulas.slstm(tuple(z), tuple(got)))
        scaled = got[1:3] * got[3].exp()
        assert_equal(got[0], torch.tensor(sigmoid(o) * c / n, dtype=F64))
        assert_equal(scaled, torch.tensor([c, n], dtype=F64))


@pytest.mark.parametrize(
    "gates", [(1e3, 0.5), (-1e3, 0.5), (0.5, 1e3), (0.5, -1e3), (1e3, -1e3)], ids=str
)
def test_no_gate_of_the_slstm_overflows(gates: tuple[float, float]) -> None:
    """What the stabiliser is for: the exponential of 1000 is infinite, and of -1000 is zero."""
    i, f, g, o = (torch.tensor(gate, dtype=F64) for gate in (*gates, 0.5, 0.25))
    state = (torch.zeros((), dtype=F64),) * 4
    for _ in range(3):
        state = formulas.slstm((i, f, g, o), state)
        assert_equal(state[0], torch.tanh(g) * torch.sigmoid(o))


def sums(z, state):
    return (z[0].cumsum(0),)


def changes(z, state):
    h = z[0]
    h += 1
    return (h,)


def branches(z, state):
    if z[0].abs() > 1:
        return (z[0],)
    return (state[0],)


def reads(z, state):
    return (z[0] * float(state[0][0]),)


def draws(z, state):
    return (F.dropout(z[0], 0.5),)


def widens(z, state):
    return (z[0].unsqueeze(1) + z[0],)


def unknown(z, state):
    return (torch.special.i0(z[0]),)


@pytest.mark.parametrize(
    ("step", "line", "message"),
    [
        (sums, 1, "uses cumsum, which is not elementwise"),
        (changes, 2, r"changes a tensor in place \(add_"),
        (branches, 1, r"takes the value of a tensor \(bool\)"),
        (reads, 1, "uses select"),
        (draws, 1, "uses"),
        (widens, 1, "uses unsqueeze"),
        (unknown, 1, "uses i0, which"),
    ],
)
def test_a_step_that_is_no_kernel_is_refused_with_its_line(step, line, message) -> None:
    where = f"{Path(__file__).name}:{step.__code__.co_firstlineno + line}: the step {message}"
    with pytest.raises(cells.StepError, match=where) as caught:
        cells.define(step, gates=1, states=1)
    if "uses" in message:
        assert "A step can use arithmetic, comparisons and abs," in str(caught.value)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda z, state: z, "must return 1 state, as states=1 says, got 2"),
        (lambda z, state: 1.0, "must return a tuple of tensors, got float"),
        (lambda z, state: (1, "h"), "must return a tuple of tensors, got (int, str)"),
        (lambda z, state: (z[0], "h"), "must return a tuple of tensors, got (Tensor, str)"),
        (lambda z, state: iter(z), "must return a tuple of tensors, got tuple_iterator"),
        (lambda z, state: [], "must return 1 state, as states=1 says, got 0"),
        (lambda z, state: (z[2],), "failed with 2 gates and 1 states: tuple index out of range"),
        (lambda z, state: (z[0] > 0,), "must return states of the shape and dtype it gets"),
        (lambda z, state, *, rate: (z[0],), "rate is a keyword argument of the step and must have"),
    ],
)
def test_a_step_of_another_form_is_refused(step, message: str) -> None:
    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(step, gates=2, states=1)


@dataclasses.dataclass
class Unhashable:
    """A step with a setting that may change under its kernels."""

    rate: float = 1.0

    def __call__(self, z: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> Tensor:
        return torch.tanh(self.rate * z[0])


def test_arguments_of_define_are_checked() -> None:
    with pytest.raises(TypeError, match="step must be a function, got int"):
        cells.define(3, gates=1, states=1)
    with pytest.raises(TypeError, match=r"must be hashable, .* Unhashable is not; a dataclass"):
        cells.define(Unhashable(), gates=1, states=1)
    with pytest.raises(ValueError, match="gates must be greater than zero, got 0"):
        cells.define(sums, gates=0, states=1)
    with pytest.raises(TypeError, match="heads must be an int, got float"):
        cells.define(sums, gates=1, states=1, heads=2.0)


def test_scalars() -> None:
    assert DECAYING.scalar_values({"floor": 0.3}) == (0.5, 0.3)
    with pytest.raises(TypeError, match="decaying has no scalar 'alpha'; it has: rate, floor"):
        DECAYING.scalar_values({"alpha": 1.0})
    with pytest.raises(ValueError, match="rate must be finite, got nan"):
        DECAYING.scalar_values({"rate": math.nan})
    torch.manual_seed(0)
    one = cells.Sequence(DECAYING, 3, 4)
    other = cells.Sequence(DECAYING, 3, 4, rate=0.25)
    other.load_state_dict(one.state_dict())
    x = torch.randn(5, 2, 3)
    assert not torch.equal(one(x)[0], other(x)[0])
    assert repr(other) == "Sequence(decaying, 3, 4, rate=0.25)"


# Against loops ----------------------------------------------------------------------------------


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


@EACH_CELL
def test_a_sequence_is_the_step_over_time(name: str) -> None:
    cell = CELLS[name]
    torch.manual_seed(0)
    rnn = cells.Sequence(cell, 3, 8, dtype=F64)
    x = torch.randn(6, 4, 3, dtype=F64)
    states = [torch.rand(4, 8, dtype=F64) for _ in range(cell.states)]
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


# reset ------------------------------------------------------------------------------------------


@EACH_CELL
def test_reset_begins_an_episode(name: str) -> None:
    cell = CELLS[name]
    torch.manual_seed(0)
    rnn = cells.Sequence(cell, 3, 8, dtype=F64)
    x = torch.randn(6, 4, 3, dtype=F64)
    reset = torch.rand(6, 4) < 0.4
    states = [torch.rand(4, 8, dtype=F64) for _ in range(cell.states)]
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


# In the place of torch's ------------------------------------------------------------------------

DROP_INS = {
    "lstm": (cells.LSTM, nn.LSTM, {}),
    "gru": (cells.GRU, nn.GRU, {}),
    "rnn_tanh": (cells.RNN, nn.RNN, {}),
    "rnn_relu": (cells.RNN, nn.RNN, {"nonlinearity": "relu"}),
}
OPTIONS = {
    "plain": {},
    "layers": {"num_layers": 2},
    "both": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no_bias": {"bias": False},
    "dropout": {"num_layers": 3, "dropout": 0.4},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", DROP_INS)
def test_equal_to_torchs(name: str, options: str) -> None:
    """Parameters drawn from the same seed, results and gradients."""
    ours_class, theirs_class, kind = DROP_INS[name]
    made = []
    for each in (ours_class, theirs_class):
        torch.manual_seed(0)
        made.append(each(3, 5, dtype=F64, **kind, **OPTIONS[options]))
    ours, theirs = made
    assert_equal(dict(ours.state_dict()), dict(theirs.state_dict()))
    assert (ours.input_size, ours.hidden_size) == (theirs.input_size, theirs.hidden_size)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = torch.randn(6, 4, 3, dtype=F64)
    results = []
    for module in made:
        torch.manual_seed(1)  # of the dropout
        output, states = module(x)
        output.square().sum().backward()
        results.append((output, states, [p.grad for p in module.parameters()]))
    assert_equal(*results)
    lengths = [2, 4, 1, 3]
    for module in made:
        module.eval()
    batch_first = OPTIONS[options].get("batch_first", False)
    padded = x[:4] if batch_first else x
    packed = pack_padded_sequence(padded, lengths, batch_first=batch_first, enforce_sorted=False)
    outputs = []
    for module in made:
        output, states = module(packed)
        outputs.append((pad_packed_sequence(output)[0], states))
    assert_equal(*outputs)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", DROP_INS)
def test_without_gradients_equal_to_torchs(name: str, options: str) -> None:
    ours_class, theirs_class, kind = DROP_INS[name]
    ours, theirs = (
        each(3, 5, dtype=F64, **kind, **OPTIONS[options]).eval()
        for each in (ours_class, theirs_class)
    )
    ours.load_state_dict(theirs.state_dict())
    x, (shorter, longer) = torch.randn(6, 4, 3, dtype=F64), ([2, 4, 1, 3], [4, 4, 3, 3])
    batch_first = OPTIONS[options].get("batch_first", False)
    padded = x[:4] if batch_first else x
    for grad in (torch.no_grad, torch.inference_mode):
        with grad():
            assert_equal(ours(x), theirs(x))
            for lengths in (shorter, longer):
                packed = pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=False)
                assert_equal(ours(packed)[0].data, theirs(packed)[0].data)


@pytest.mark.parametrize("name", ["lstm", "rnn_tanh"])
def test_without_gradients_no_weights_are_copied(name: str) -> None:
    """Side by side they would be, and a large LSTM spend a tenth of its time on that."""
    ours_class, _, kind = DROP_INS[name]
    rnn, x = ours_class(3, 5, **kind), torch.randn(9, 4, 3)
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profiled:
        rnn(x)
    shapes = [shape for event in profiled.events() for shape in event.input_shapes]
    weights = [list(parameter.shape) for parameter in (rnn.weight_hh_l0, rnn.weight_ih_l0)]
    copies = [event for event in profiled.events() if event.name == "aten::copy_"]
    assert all(weight in shapes for weight in weights)
    assert not any(weight in event.input_shapes for event in copies for weight in weights)
    assert not any("cat" in event.name for event in profiled.events())


@pytest.mark.parametrize("name", DROP_INS)
def test_state_dicts_go_both_ways(name: str) -> None:
    ours_class, theirs_class, kind = DROP_INS[name]
    theirs, ours = theirs_class(3, 5, 2, **kind), ours_class(3, 5, 2, **kind)
    ours.load_state_dict(theirs.state_dict())
    x, h = torch.randn(6, 3), torch.randn(2, 5)
    hx = (h, h) if name == "lstm" else h
    torch.testing.assert_close(ours(x, hx), theirs(x, hx))
    fresh = theirs_class(3, 5, 2, **kind)
    fresh.load_state_dict(ours.state_dict())
    torch.testing.assert_close(fresh(x, hx), theirs(x, hx))


BOTH_LAYERS = {"num_layers": 2, "bias": False, "batch_first": True, "bidirectional": True}


@pytest.mark.parametrize("options", [{}, BOTH_LAYERS, {"num_layers": 2, "dropout": 0.5}], ids=str)
@pytest.mark.parametrize("name", DROP_INS)
def test_what_is_read_from_a_module_is_torchs(name: str, options: dict[str, object]) -> None:
    """Its text, its kind, and its parameters by layer, as recipes of initialisation loop over."""
    ours_class, theirs_class, kind = DROP_INS[name]
    ours, theirs = (make(3, 5, **kind, **options) for make in (ours_class, theirs_class))
    assert repr(ours) == repr(theirs)
    assert ours.mode == theirs.mode
    assert ours._all_weights == theirs._all_weights
    ours.load_state_dict(theirs.state_dict())
    assert_equal(ours.all_weights, theirs.all_weights)
    assert ours.all_weights[0][0] is ours.weight_ih_l0


@pytest.mark.parametrize("name", DROP_INS)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda make: make(0, 5), ValueError, "input_size must be greater than zero, got 0"),
        (lambda make: make(3, 5.0), TypeError, "hidden_size must be an int, got float"),
        (
            lambda make: make(3, 5)(torch.randn(4, 2, 7)),
            RuntimeError,
            "input must have input_size = 3 as its last size, got [4, 2, 7]",
        ),
    ],
)
def test_errors_have_torchs_names(name: str, call, error, message: str) -> None:
    make, _, kind = DROP_INS[name]
    with pytest.raises(error, match=re.escape(message)):
        call(functools.partial(make, **kind))


@pytest.mark.parametrize("hx", [3, (torch.zeros(1, 2, 5),)], ids=["int", "tuple"])
@pytest.mark.parametrize("name", ["gru", "rnn_tanh"])
def test_a_module_with_one_state_takes_a_tensor(name: str, hx: object) -> None:
    make, _, _ = DROP_INS[name]
    message = f"hx must be a Tensor, got {'int' if hx == 3 else '(Tensor)'}"
    with pytest.raises(TypeError, match=re.escape(message)):
        make(3, 5)(torch.randn(4, 2, 3), hx)


def states_of(module: nn.Module, input: object) -> tuple[Tensor, ...]:
    """As a tuple, also of a module with one state."""
    _, states = module(input)
    return states if isinstance(states, tuple) else (states,)


IN_PLACE = {
    "write": lambda state: state.__setitem__((slice(None), 0), 0.0),
    "multiply": lambda state: state.mul_(0.5),
    "transpose": lambda state: state.transpose_(0, 1),
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", ["plain", "layers", "both"])
@pytest.mark.parametrize("name", DROP_INS)
def test_states_can_be_changed_in_place(name: str, options: str, packed: bool, change: str) -> None:
    """And have the gradients of torch's modules then."""
    ours_class, theirs_class, kind = DROP_INS[name]
    x = torch.randn(4, 4, 3, dtype=F64)
    input = pack_padded_sequence(x, [3, 2, 1, 4], enforce_sorted=False) if packed else x
    found = []
    for make in (ours_class, theirs_class):
        torch.manual_seed(0)
        module = make(3, 5, dtype=F64, **kind, **OPTIONS[options])
        states = states_of(module, input)
        for state in states:
            IN_PLACE[change](state)
        loss = torch.stack([state.square().sum() for state in states]).sum()
        found.append((states, torch.autograd.grad(loss, list(module.parameters()))))
    assert_equal(*found)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("options", ["plain", "layers", "both"])
@pytest.mark.parametrize("name", DROP_INS)
def test_states_can_be_detached_in_place(name: str, options: str, grad: bool) -> None:
    """As truncated backpropagation through time does it."""
    make, _, kind = DROP_INS[name]
    with torch.set_grad_enabled(grad):
        for state in states_of(make(3, 5, **kind, **OPTIONS[options]), torch.randn(4, 4, 3)):
            assert not state.detach_().requires_grad


@EACH_CELL
def test_results_can_be_changed_in_place(name: str) -> None:
    """Those of Sequence and of Cell; a state that is written leaves the others alone."""
    rnn, x = cells.Sequence(CELLS[name], 3, 8), torch.randn(4, 2, 3)
    output, states = rnn(x)
    assert not output.detach_().requires_grad
    for states in (rnn(x)[1], cells.Cell(CELLS[name], 3, 8)(x[0])):
        before = [state.detach().clone() for state in states]
        states[0].fill_(7.0)
        assert all(torch.equal(s, b) for s, b in zip(states[1:], before[1:], strict=True))
        assert not any(state.detach_().requires_grad for state in states)


class Tagger(nn.Module):
    """An encoder of packed rows, and a decoder whose state goes on."""

    def __init__(self, modules: ModuleType) -> None:
        super().__init__()
        self.encoder = modules.LSTM(3, 4, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.decoder = modules.GRU(8, 4, batch_first=True)
        self.top = modules.RNN(4, 4, nonlinearity="relu", batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        encoded, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        decoded, h = self.decoder(encoded, h)
        return self.top(decoded)[0], h


def test_a_model_trains_the_same_after_a_switch_of_class() -> None:
    trained = []
    for modules in (nn, cells):
        torch.manual_seed(0)
        model, h = Tagger(modules).double(), None
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(6):
            if h is not None:
                h.detach_()
                h[:, 0] = 0.0
            x, lengths = torch.randn(4, 5, 3, dtype=F64), torch.tensor([2, 5, 1, 3])
            output, h = model(x, lengths, h)
            optimizer.zero_grad()
            output.square().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        trained.append(list(model.parameters()))
    torch.testing.assert_close(*trained, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore")  # of torch.jit, which is deprecated
@pytest.mark.parametrize("name", DROP_INS)
def test_traced_by_jit(name: str) -> None:
    """For any number of steps and rows, as torch's modules."""
    make, _, kind = DROP_INS[name]
    module = make(3, 5, 2, bidirectional=True, **kind)
    traced = torch.jit.trace(module, (torch.randn(6, 4, 3),))
    x = torch.randn(9, 2, 3)
    assert_equal(traced(x), module(x))


def test_what_torchs_modules_have_and_these_do_not() -> None:
    with pytest.raises(ValueError, match="proj_size must be 0, got 2"):
        cells.LSTM(3, 5, proj_size=2)
    with pytest.raises(ValueError, match="nonlinearity must be 'tanh' or 'relu', got 'gelu'"):
        cells.RNN(3, 5, nonlinearity="gelu")


# Modules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=cases.identify)
@EACH_CELL
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8, dtype=dtype)
    x = torch.randn(4, 2, 3, dtype=dtype)
    output, states = rnn(x)
    exact, _ = rnn.double()(x.double())
    assert output.dtype == dtype
    assert {state.dtype for state in states} == {dtype}
    cases.assert_close(output, exact.to(dtype), name)


@EACH_CELL
def test_autocast(name: str) -> None:
    """Everything in bfloat16, as torch casts for its own recurrent cells; gradients in float32."""
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8)
    low = cells.Sequence(CELLS[name], 3, 8, dtype=torch.bfloat16)
    low.load_state_dict(rnn.state_dict())
    x = torch.randn(4, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        output, states = rnn(x)
    expected = low(x.bfloat16())
    assert torch.equal(output, expected[0])
    for state, same in zip(states, expected[1], strict=True):
        assert torch.equal(state, same)
    output.sum().backward()
    expected[0].sum().backward()
    for parameter, same in zip(rnn.parameters(), low.parameters(), strict=True):
        assert parameter.grad.dtype == torch.float32
        assert torch.equal(parameter.grad, same.grad.float())


@pytest.mark.parametrize("use_reentrant", [False, True])
@EACH_CELL
def test_checkpoint(name: str, use_reentrant: bool) -> None:
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8)
    x = torch.randn(4, 2, 3, requires_grad=True)
    checkpoint(lambda x: rnn(x)[0], x, use_reentrant=use_reentrant).sum().backward()
    (expected,) = torch.autograd.grad(rnn(x)[0].sum(), x)
    assert torch.equal(x.grad, expected)


@EACH_CELL
def test_inference_mode(name: str) -> None:
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8)
    x = torch.randn(4, 2, 3)
    expected, _ = rnn(x)
    with torch.inference_mode():
        output, _ = rnn(x)
    assert output.is_inference()
    assert torch.equal(output.clone(), expected)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@EACH_CELL
def test_copies(name: str, how: str) -> None:
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8, num_layers=2)
    copied = copy.deepcopy(rnn) if how == "deepcopy" else pickle.loads(pickle.dumps(rnn))
    x = torch.randn(4, 2, 3)
    assert torch.equal(rnn(x)[0], copied(x)[0])
    assert repr(rnn) == repr(copied)


@EACH_CELL
def test_backward_twice_and_after_a_change_in_place(name: str) -> None:
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8)
    loss = rnn(torch.randn(4, 2, 3))[0].sum()
    first = torch.autograd.grad(loss, rnn.weight_l0, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(loss, rnn.weight_l0, retain_graph=True)[0])
    with torch.no_grad():
        rnn.weight_l0.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, rnn.weight_l0)


@pytest.mark.parametrize("num_layers", [1, 2])
@EACH_CELL
def test_per_sample_gradients(name: str, num_layers: int) -> None:
    """Of a module, with all that it does around the op."""
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8, num_layers=num_layers, dtype=F64)
    parameters = dict(rnn.named_parameters())
    x = torch.randn(4, 2, 3, dtype=F64)

    def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        output, states = torch.func.functional_call(rnn, parameters, (row,))
        return output.square().sum() + sum(state.sum() for state in states)

    found = torch.vmap(torch.func.grad(loss), (None, 1))(parameters, x)
    for row in range(2):
        expected = torch.autograd.grad(loss(parameters, x[:, row]), list(parameters.values()))
        for each, gradient in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(each[row], gradient)


def test_no_steps_and_no_rows() -> None:
    rnn = cells.Sequence(formulas.LSTM, 3, 8)
    h, c = torch.randn(1, 2, 8), torch.randn(1, 2, 8)
    output, states = rnn(torch.randn(0, 2, 3), (h, c))
    assert output.shape == (0, 2, 8)
    assert_equal(states, (h, c))
    output, (h, _) = rnn(torch.randn(4, 0, 3))
    assert output.shape == (4, 0, 8)
    assert h.shape == (1, 0, 8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda rnn: rnn(3), TypeError, "input must be a Tensor or a PackedSequence, got int"),
        (lambda rnn: rnn(torch.randn(3)), RuntimeError, "input must have shape [T, B, F], or"),
        (lambda rnn: rnn(torch.randn(4, 2, 5)), RuntimeError, "input_features = 3 as its last"),
        (lambda rnn: rnn(torch.randn(4, 2, 3), 1), TypeError, "hx must be a tuple of the cell's 2"),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), (torch.randn(1, 2, 8), torch.randn(1, 3, 8))),
            RuntimeError,
            "hx: state 1 must have shape [1, 2, 8], got [1, 3, 8]",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), reset=torch.zeros(2, 4, dtype=torch.bool)),
            RuntimeError,
            "reset must have the shape of input without its features, [4, 2], got [2, 4]",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), reset=[[True, False]] * 4),
            TypeError,
            "reset must be a Tensor, got list",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), reset=torch.zeros(4, 2)),
            RuntimeError,
            "reset must be bool of shape [T, B] = [4, 2], got torch.float32 [4, 2]",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3, dtype=F64)),
            RuntimeError,
            "must have the dtype of input, torch.float64, got torch.float32",
        ),
        (
            lambda rnn: rnn(
                pack_padded_sequence(torch.randn(4, 2, 3), [4, 2]),
                reset=torch.zeros(4, 2, dtype=torch.bool),
            ),
            TypeError,
            "reset is for a Tensor, not for a PackedSequence",
        ),
        (
            lambda rnn: rnn(torch.ones(4, 2, 3, dtype=torch.int64)),
            RuntimeError,
            "input must be float32, float64, bfloat16 or float16, got torch.int64",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3).to_sparse()),
            RuntimeError,
            "input must be a dense tensor (strided), got torch.sparse_coo",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), (torch.zeros(1, 2, 8).to_sparse(),) * 2),
            RuntimeError,
            "states must be a dense tensor (strided), got torch.sparse_coo",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), (torch.zeros(1, 2, 8, dtype=F64),) * 2),
            RuntimeError,
            "states must have the dtype of input, torch.float32, got torch.float64",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), (torch.zeros(1, 2, 8, device="meta"),) * 2),
            RuntimeError,
            "states must be on the device of input, cpu, got meta",
        ),
        (
            lambda rnn: rnn(
                torch.randn(4, 2, 3), reset=torch.zeros(4, 2, dtype=torch.bool, device="meta")
            ),
            RuntimeError,
            "reset must be on the device of input, cpu, got meta",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), reset_state=(torch.zeros(1, 2, 8),) * 2),
            RuntimeError,
            "reset_state needs reset, which is None",
        ),
        (
            lambda rnn: torch.func.functional_call(
                rnn, {"weight_l0": torch.zeros(8, 11)}, torch.randn(4, 2, 3)
            ),
            RuntimeError,
            "weights must have shape [G * S, S / heads + F] = [32, 11], got [8, 11]",
        ),
        (
            lambda rnn: torch.func.functional_call(
                rnn, {"weight_l0": torch.zeros(32, 3)}, torch.randn(4, 2, 3)
            ),
            RuntimeError,
            "weights must have shape [G * S, S / heads + F] = [32, 11], got [32, 3]",
        ),
    ],
)
def test_arguments_of_a_call_are_checked(call, error, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(cells.Sequence(formulas.LSTM, 3, 8))


def test_dropout_of_one_layer_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"dropout=0.5 has no effect with num_layers=1"):
        cells.LSTM(3, 8, dropout=0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cells.Sequence(nn.LSTM, 3, 8), TypeError, "what lltm.cells.define() returns"),
        (
            lambda: cells.SLSTM(3, 8, heads=3),
            ValueError,
            "a multiple of the cell's heads, 3, got 8",
        ),
        (lambda: cells.LSTM(3, 8, dropout=2.0), ValueError, "dropout must be a probability"),
        (lambda: cells.Cell(formulas.LSTM, 0, 8), ValueError, "input_features must be greater"),
        (lambda: cells.LLTM(3, 8, beta=2.0), TypeError, "lltm has no scalar 'beta'; it has: alpha"),
    ],
)
def test_arguments_of_a_module_are_checked(make, error, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()
