"""``lltm.cells.LSTM``, ``GRU`` and ``RNN`` in the place of torch's."""

from __future__ import annotations

import abc
import copy
import functools
import pickle
import re
from collections.abc import Callable
from types import ModuleType

import cases
import pytest
import torch
from cells_cases import CELLS, EACH_CELL, assert_equal
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lltm import cells

F64 = torch.float64
DROP_INS = {
    "lstm": (cells.LSTM, nn.LSTM, {}),
    "lstm_projected": (cells.LSTM, nn.LSTM, {"proj_size": 2}),
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
    hx = (h[:, : ours.proj_size or 5], h) if ours.mode == "LSTM" else h
    torch.testing.assert_close(ours(x, hx), theirs(x, hx))
    fresh = theirs_class(3, 5, 2, **kind)
    fresh.load_state_dict(ours.state_dict())
    torch.testing.assert_close(fresh(x, hx), theirs(x, hx))


BOTH_LAYERS = {"num_layers": 2, "bias": False, "batch_first": True, "bidirectional": True}


DROPOUTS = [{"num_layers": 2, "dropout": dropout} for dropout in (0.5, 1)]


@pytest.mark.parametrize("options", [{}, BOTH_LAYERS, *DROPOUTS], ids=str)
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
def test_a_subclass_may_set_its_sizes(name: str) -> None:
    """As many do that have their arguments' names."""
    make, _, kind = DROP_INS[name]

    class Encoder(make):
        def __init__(self, input_size: int, hidden_size: int) -> None:
            super().__init__(input_size, hidden_size, **kind)
            self.input_size, self.hidden_size = input_size, hidden_size

    encoder = Encoder(3, 5)
    assert (encoder.input_size, encoder.hidden_size) == (3, 5)
    assert encoder(torch.randn(4, 2, 3))[0].shape == (4, 2, kind.get("proj_size", 5))


@pytest.mark.parametrize("name", DROP_INS)
def test_a_class_may_derive_from_sequence_too(name: str) -> None:
    """As pytorch-forecasting's from nn.RNNBase and nn.LSTM."""
    make, _, kind = DROP_INS[name]

    class Base(abc.ABC, cells.Sequence):
        def forward(self, x: Tensor, hx: object = None) -> object:
            return super().forward(x, hx=hx)

    class Flexible(Base, make):
        pass

    flexible, plain, x = Flexible(3, 5, 2, **kind), make(3, 5, 2, **kind), torch.randn(4, 2, 3)
    flexible.load_state_dict(plain.state_dict())
    assert_equal(flexible(x), plain(x))
    assert_equal(flexible(x, flexible(x)[1]), plain(x, plain(x)[1]))


@pytest.mark.parametrize("how", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("name", DROP_INS)
def test_copies(name: str, how: Callable[[nn.Module], nn.Module]) -> None:
    make, _, kind = DROP_INS[name]
    module, x = make(3, 5, 2, **kind), torch.randn(4, 2, 3)
    copied = how(module)
    assert_equal(copied(x), module(x))
    assert repr(copied) == repr(module)


@pytest.mark.parametrize("name", DROP_INS)
def test_a_module_whose_input_weights_are_replaced_takes_their_size(name: str) -> None:
    make, _, kind = DROP_INS[name]
    module = make(3, 5, bias=False, **kind)
    module.weight_ih_l0 = nn.Parameter(torch.randn(module.weight_ih_l0.shape[0], 7))
    module.input_size = 7
    assert module(torch.randn(4, 2, 7))[0].shape == (4, 2, kind.get("proj_size", 5))


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


def gradients_of_torchs_and_ours(
    name: str, options: str, packed: bool
) -> tuple[tuple[Tensor, ...], ...]:
    """By autograd.grad, of the same parameters."""
    ours_class, theirs_class, kind = DROP_INS[name]
    x = torch.randn(4, 4, 3, dtype=F64)
    input = pack_padded_sequence(x, [3, 2, 1, 4], enforce_sorted=False) if packed else x
    found = []
    for make in (theirs_class, ours_class):
        torch.manual_seed(0)
        module = make(3, 5, dtype=F64, **kind, **OPTIONS[options])
        loss = torch.stack([state.square().sum() for state in states_of(module, input)]).sum()
        found.append(torch.autograd.grad(loss, list(module.parameters())))
    return tuple(found)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", ["plain", "layers", "both"])
@pytest.mark.parametrize("name", DROP_INS)
def test_gradients_are_flattened_by_view(name: str, options: str, packed: bool) -> None:
    """As code for second-order methods does with what autograd.grad returns."""
    theirs, ours = gradients_of_torchs_and_ours(name, options, packed)
    assert_equal(nn.utils.parameters_to_vector(ours), nn.utils.parameters_to_vector(theirs))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", ["plain", "layers", "both"])
@pytest.mark.parametrize("name", DROP_INS)
def test_gradients_can_be_changed_in_place(name: str, options: str, packed: bool) -> None:
    """Each alone, as by those who clip or sum what autograd.grad returns."""
    theirs, ours = gradients_of_torchs_and_ours(name, options, packed)
    for gradient in (*theirs, *ours):
        gradient.mul_(0.5)
    assert_equal(ours, theirs)


def test_gradients_of_what_was_exported_without_them_can_be_changed_in_place() -> None:
    rnn, x = cells.LSTM(3, 5), torch.randn(4, 2, 3)
    with torch.no_grad():
        exported = torch.export.export(rnn, (x,)).module()
    biases = [getattr(exported, name) for name in ("bias_ih_l0", "bias_hh_l0")]
    first, second = torch.autograd.grad(exported(x)[0].sum(), biases)
    expected = second.clone()
    first.mul_(0.5)
    assert torch.equal(second, expected)


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


@pytest.mark.filterwarnings("ignore")  # of torch.jit, which holds the lengths as constants
@pytest.mark.parametrize("default", ["cpu", "meta"])
@pytest.mark.parametrize("name", DROP_INS)
def test_a_packed_batch_traced_by_jit(name: str, default: str) -> None:
    """For its lengths, and for no others."""
    make, _, kind = DROP_INS[name]

    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = make(3, 5, 2, bidirectional=True, **kind)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            return pad_packed_sequence(self.rnn(packed)[0])[0]

    module, lengths = Packing(), torch.tensor([2, 4, 1, 3])
    given = (torch.randn(4, 4, 3), lengths)
    with torch.device(default):  # lengths are on the CPU whatever that is
        traced = torch.jit.trace(module, given)
    x = torch.randn(4, 4, 3)
    assert_equal(traced(x, lengths), module(x, lengths))
    for others in ([2, 4, 2, 2], [4, 4, 4, 4], [3, 4, 3]):
        with pytest.raises(RuntimeError):  # in torch's words, as a trace has none of ours
            traced(x[:, : len(others)], torch.tensor(others))


def test_what_torchs_modules_have_and_these_do_not() -> None:
    with pytest.raises(ValueError, match=r"nonlinearity must be 'tanh' or 'relu', got \['tanh'\]"):
        cells.RNN(3, 5, nonlinearity=["tanh"])  # type: ignore[arg-type]  # a fault
    with pytest.raises(ValueError, match="nonlinearity must be 'tanh' or 'relu', got 'gelu'"):
        cells.RNN(3, 5, nonlinearity="gelu")


@pytest.mark.parametrize(
    ("make", "proj_size", "error", "message"),
    [
        (cells.LSTM, 5, ValueError, "here at most 4, got 5"),
        (cells.LSTM, -1, ValueError, "proj_size must be at least 0, got -1"),
        (cells.LSTM, 2.0, TypeError, "proj_size must be an int, got float"),
        (cells.GRU, 2, ValueError, "here at most 0, got 2"),
        (cells.RNN, 2, ValueError, "here at most 0, got 2"),
    ],
)
def test_a_projection_is_smaller_than_its_lstm(make, proj_size, error, message: str) -> None:
    with pytest.raises(error, match=message):
        make(3, 5, proj_size=proj_size)


def test_the_states_of_a_projected_lstm_have_two_sizes() -> None:
    rnn, h = cells.LSTM(3, 5, proj_size=2), torch.zeros(1, 4, 5)
    with pytest.raises(RuntimeError, match=re.escape("hx: h must have shape [1, 4, 2], got [1")):
        rnn(torch.zeros(6, 4, 3), (h, h))


@pytest.mark.parametrize("packed", [False, True])
def test_first_states_of_a_projected_lstm(packed: bool) -> None:
    """In both directions of two layers, and their gradients."""
    torch.manual_seed(0)
    theirs = nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2, dtype=F64)
    ours = cells.LSTM(3, 5, 2, bidirectional=True, proj_size=2, dtype=F64)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 4, 3, dtype=F64)
    input = pack_padded_sequence(x, [3, 2, 1, 4], enforce_sorted=False) if packed else x
    hx = [torch.randn(4, 4, size, dtype=F64, requires_grad=True) for size in (2, 5)]
    found = []
    for module in (ours, theirs):
        output, states = module(input, tuple(hx))
        data = output.data if packed else output
        loss = data.sin().sum() + sum(state.cos().sum() for state in states)
        found.append((data, states, torch.autograd.grad(loss, [*hx, *module.parameters()])))
    assert_equal(*found)


@pytest.mark.parametrize("with_state", [False, True])
def test_a_projected_lstm_begins_episodes(with_state: bool) -> None:
    """Each is a sequence by itself."""
    torch.manual_seed(0)
    rnn = cells.LSTM(3, 5, proj_size=2, dtype=F64)
    x, reset = torch.randn(7, 4, 3, dtype=F64), torch.zeros(7, 4, dtype=torch.bool)
    reset[3] = True
    first, again = (tuple(torch.randn(1, 4, size, dtype=F64) for size in (2, 5)) for _ in range(2))
    starts = {"reset_state": again} if with_state else {}
    whole, last = rnn(x, first, reset=reset, **starts)
    before, _ = rnn(x[:3], first)
    after, last_after = rnn(x[3:], again if with_state else None)
    assert_equal((whole, last), (torch.cat([before, after]), last_after))


def test_a_projected_lstm_of_no_steps_leaves_its_states() -> None:
    first = tuple(torch.randn(1, 4, size) for size in (2, 5))
    output, last = cells.LSTM(3, 5, proj_size=2)(torch.zeros(0, 4, 3), first)
    assert output.shape == (0, 4, 2)
    assert_equal(last, first)


@pytest.mark.compile
def test_a_projected_lstm_is_compiled_and_cast() -> None:
    torch.manual_seed(0)
    rnn, x = cells.LSTM(3, 5, 2, proj_size=2), torch.randn(6, 4, 3)
    low = cells.LSTM(3, 5, 2, proj_size=2, dtype=torch.bfloat16)
    low.load_state_dict(rnn.state_dict())
    torch.compiler.reset()
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), rnn(x))
    with torch.autocast("cpu", torch.bfloat16):
        output, states = rnn(x)
    expected, wanted = low(x.bfloat16())
    for found, right in zip((output, *states), (expected, *wanted), strict=True):
        cases.assert_close(found, right, "autocast")
