"""LLTM and LLTMSequence agree with a composition of reference cells, in every configuration."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import dataclass

import cases
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence, unpack_sequence

import lltm

F, S, LENGTHS = 3, 4, (4, 2, 5, 2, 1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@dataclass(frozen=True)
class Configuration:
    layers: int
    bidirectional: bool
    bias: bool
    alpha: float

    def module(self, **options: object) -> lltm.LLTMSequence:
        return lltm.LLTMSequence(
            F,
            S,
            num_layers=self.layers,
            bidirectional=self.bidirectional,
            bias=self.bias,
            alpha=self.alpha,
            dtype=torch.float64,
            **options,
        )

    @property
    def rows(self) -> int:
        return self.layers * (2 if self.bidirectional else 1)

    def state(self, *batch: int) -> tuple[Tensor, Tensor]:
        shape = (self.rows, *batch, S)
        h = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        return h, torch.randn(shape, dtype=torch.float64, requires_grad=True)


CONFIGURATIONS = [
    Configuration(layers, bidirectional, bias, alpha)
    for layers, bidirectional, (bias, alpha) in itertools.product(
        (1, 2, 3), (False, True), ((True, 1.0), (False, 0.5))
    )
]


def _compose(
    module: lltm.LLTMSequence, x: Tensor, h0: Tensor, c0: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One unbatched sequence [T, F] through reference cells: the definition of the module."""
    h_n, c_n = [], []
    directions = 2 if module.bidirectional else 1
    for layer in range(module.num_layers):
        sides = []
        for direction in range(directions):
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            weights = getattr(module, f"weight{suffix}")
            bias = getattr(module, f"bias{suffix}")
            h, c = h0[len(h_n), None], c0[len(h_n), None]
            steps = range(len(x) - 1, -1, -1) if direction else range(len(x))
            outputs: dict[int, Tensor] = {}
            for t in steps:
                h, c = lltm.reference.cell(x[t, None], weights, bias, h, c, module.alpha)
                outputs[t] = h[0]
            sides.append(torch.stack([outputs[t] for t in range(len(x))]))
            h_n.append(h[0])
            c_n.append(c[0])
        x = torch.cat(sides, dim=1)
    return x, torch.stack(h_n), torch.stack(c_n)


def _gradients(module: nn.Module, outputs: tuple[Tensor, ...], *inputs: Tensor) -> list[Tensor]:
    asking = [*module.parameters(), *inputs]
    return list(torch.autograd.grad(cases.loss(outputs), asking))


def _assert_all_close(actual: object, expected: object, what: str) -> None:
    for a, e in zip(actual, expected, strict=True):
        cases.assert_close(a, e, what)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_batched(configuration: Configuration, batch_first: bool, with_state: bool) -> None:
    module = configuration.module(batch_first=batch_first)
    x = torch.randn(5, 3, F, dtype=torch.float64, requires_grad=True)
    h0, c0 = configuration.state(3)
    given = x.transpose(0, 1) if batch_first else x
    output, (h_n, c_n) = module(given, (h0, c0) if with_state else None)
    if batch_first:
        output = output.transpose(0, 1)
    start = (h0, c0) if with_state else (torch.zeros_like(h0), torch.zeros_like(c0))
    rows = [_compose(module, x[:, b], start[0][:, b], start[1][:, b]) for b in range(3)]
    expected = tuple(torch.stack(part, dim=1) for part in zip(*rows, strict=True))
    actual = (output, h_n, c_n)
    _assert_all_close(actual, expected, "output and states")
    leaves = (x, h0, c0) if with_state else (x,)
    _assert_all_close(
        _gradients(module, actual, *leaves), _gradients(module, expected, *leaves), "gradients"
    )


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched(configuration: Configuration, batch_first: bool) -> None:
    module = configuration.module(batch_first=batch_first)
    x = torch.randn(5, F, dtype=torch.float64)
    h0, c0 = configuration.state()
    output, (h_n, c_n) = module(x, (h0, c0))
    _assert_all_close((output, h_n, c_n), _compose(module, x, h0, c0), "unbatched")


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_packed(configuration: Configuration, is_sorted: bool, with_state: bool) -> None:
    """Every row of a packed batch ends, and its reverse direction begins, at its own last step."""
    module = configuration.module()
    lengths = sorted(LENGTHS, reverse=True) if is_sorted else LENGTHS
    xs = [torch.randn(n, F, dtype=torch.float64, requires_grad=True) for n in lengths]
    packed = pack_sequence(xs, enforce_sorted=is_sorted)
    h0, c0 = configuration.state(len(lengths))
    output, (h_n, c_n) = module(packed, (h0, c0) if with_state else None)
    assert isinstance(output, PackedSequence)
    assert torch.equal(output.batch_sizes, packed.batch_sizes)
    start = (h0, c0) if with_state else (torch.zeros_like(h0), torch.zeros_like(c0))
    rows = [_compose(module, x, start[0][:, b], start[1][:, b]) for b, x in enumerate(xs)]
    outputs, expected_h, expected_c = zip(*rows, strict=True)
    actual = (*unpack_sequence(output), h_n, c_n)
    expected = (*outputs, torch.stack(expected_h, dim=1), torch.stack(expected_c, dim=1))
    _assert_all_close(actual, expected, "packed")
    leaves = (*xs, h0, c0) if with_state else tuple(xs)
    _assert_all_close(
        _gradients(module, actual, *leaves), _gradients(module, expected, *leaves), "gradients"
    )


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["batched", "batch_first", "unbatched", "packed"])
def test_conventions_of_lstm(kind: str, bidirectional: bool) -> None:
    """Shapes, types and packing of what comes back are nn.LSTM's."""
    options = {
        "num_layers": 2,
        "bidirectional": bidirectional,
        "batch_first": kind == "batch_first",
    }
    ours, theirs = lltm.LLTMSequence(F, S, **options), nn.LSTM(F, S, **options)
    inputs = {
        "batched": torch.randn(5, 2, F),
        "batch_first": torch.randn(2, 5, F),
        "unbatched": torch.randn(5, F),
        "packed": pack_sequence([torch.randn(n, F) for n in LENGTHS], enforce_sorted=False),
    }
    output, (h_n, c_n) = ours(inputs[kind])
    expected, (expected_h, expected_c) = theirs(inputs[kind])
    assert type(output) is type(expected)
    assert h_n.shape == expected_h.shape
    assert c_n.shape == expected_c.shape
    if isinstance(output, PackedSequence):
        assert output.data.shape == expected.data.shape
        assert torch.equal(output.unsorted_indices, expected.unsorted_indices)
        padded, lengths = pad_packed_sequence(output)
        assert padded.shape == pad_packed_sequence(expected)[0].shape
        assert lengths.tolist() == list(LENGTHS)
    else:
        assert output.shape == expected.shape


def test_packed_calls_the_op_once_per_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is not computed, and no row has a call of its own."""
    calls: list[tuple[int, ...]] = []

    def counting(x: Tensor, *args: object) -> tuple[Tensor, Tensor, Tensor]:
        calls.append(tuple(x.shape))
        return lltm.lltm_sequence(x, *args)

    monkeypatch.setattr("lltm.modules.lltm_sequence", counting)
    xs = [torch.randn(n, F) for n in (7, 7, 7, 3, 3, 1)]
    lltm.LLTMSequence(F, S)(pack_sequence(xs))
    assert calls == [(1, 6, F), (2, 5, F), (4, 3, F)]


def test_dropout_is_between_layers_and_in_training_only() -> None:
    module = lltm.LLTMSequence(F, S, num_layers=2, dropout=1.0)
    x = torch.randn(5, 2, F)
    bottom = lltm.LLTMSequence(F, S)
    bottom.load_state_dict(
        {"weight_l0": module.weight_l0.detach(), "bias_l0": module.bias_l0.detach()}
    )
    output, (h_n, _) = module(x)
    cases.assert_close(h_n[0], bottom(x)[1][0][0], "the first layer is not dropped")
    top = lltm.LLTMSequence(S, S)
    top.load_state_dict(
        {"weight_l0": module.weight_l1.detach(), "bias_l0": module.bias_l1.detach()}
    )
    cases.assert_close(output, top(torch.zeros(5, 2, S))[0], "the second sees zeros")
    module.eval()
    cases.assert_close(module(x)[0], top(bottom(x)[0])[0], "nothing is dropped in evaluation")


def test_no_steps() -> None:
    module = lltm.LLTMSequence(F, S, num_layers=2, bidirectional=True)
    h0, c0 = torch.randn(4, 3, S), torch.randn(4, 3, S)
    output, (h_n, c_n) = module(torch.empty(0, 3, F), (h0, c0))
    assert output.shape == (0, 3, 2 * S)
    assert torch.equal(h_n, h0)
    assert torch.equal(c_n, c0)


# The cell ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_cell(bias: bool, alpha: float) -> None:
    module = lltm.LLTM(F, S, bias=bias, alpha=alpha)
    x, h, c = torch.randn(2, F), torch.randn(2, S), torch.randn(2, S)
    expected = lltm.reference.cell(x, module.weights, module.bias, h, c, alpha)
    _assert_all_close(module(x, (h, c)), expected, "cell")
    zeros = torch.zeros(2, S)
    expected = lltm.reference.cell(x, module.weights, module.bias, zeros, zeros, alpha)
    _assert_all_close(module(x), expected, "state left out")


@pytest.mark.parametrize("shape", [(1, 3 * S + 1), (3 * S, 1), (3 * S - 1,)], ids=str)
def test_state_dict_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    module = lltm.LLTM(F, S)
    state = {"weights": module.weights.detach(), "bias": torch.zeros(shape)}
    with pytest.raises(RuntimeError, match="size mismatch for bias"):
        module.load_state_dict(state)


# Both -------------------------------------------------------------------------------------------

MODULES = {
    "LLTM": lambda **options: lltm.LLTM(F, S, **options),
    "LLTMSequence": lambda **options: lltm.LLTMSequence(
        F, S, num_layers=2, bidirectional=True, **options
    ),
}
INPUTS = {"LLTM": (2, F), "LLTMSequence": (5, 2, F)}
STATES = {"LLTM": (2, S), "LLTMSequence": (4, 2, S)}


def _flat(result: tuple[Tensor, object]) -> list[Tensor]:
    new_h_or_output, state = result
    return [new_h_or_output, *([state] if isinstance(state, Tensor) else state)]


@pytest.mark.parametrize("name", MODULES)
def test_initialisation(name: str) -> None:
    module = MODULES[name]()
    bound = S**-0.5
    values = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    assert float(values.abs().max()) <= bound
    assert float(values.abs().max()) > 0.9 * bound
    assert abs(float(values.mean())) < 0.25 * bound
    before = values.clone()
    module.reset_parameters()
    assert not torch.equal(before, torch.cat([p.flatten() for p in module.parameters()]))


@pytest.mark.parametrize("name", MODULES)
def test_a_list_of_states_is_taken_as_nn_lstm_takes_it(name: str) -> None:
    module, x = MODULES[name](), torch.randn(INPUTS[name])
    h, c = torch.randn(2, *STATES[name])
    for a, e in zip(_flat(module(x, [h, c])), _flat(module(x, (h, c))), strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "state_dict"])
def test_copies(name: str, how: str) -> None:
    module = MODULES[name](alpha=0.5)
    if how == "deepcopy":
        other = copy.deepcopy(module)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(module))
    else:
        other = MODULES[name](alpha=0.5)
        other.load_state_dict(module.state_dict())
    x = torch.randn(INPUTS[name])
    for a, e in zip(_flat(other(x)), _flat(module(x)), strict=True):
        assert torch.equal(a, e)
    assert repr(other) == repr(module)
    with torch.no_grad():
        next(other.parameters()).zero_()
    assert next(module.parameters()).any(), "the copy has parameters of its own"


def test_state_dict_keys() -> None:
    assert list(lltm.LLTM(F, S).state_dict()) == ["weights", "bias"]
    assert list(lltm.LLTM(F, S, bias=False).state_dict()) == ["weights"]
    module = lltm.LLTMSequence(F, S, num_layers=2, bidirectional=True)
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    assert shapes == {
        "weight_l0": (12, 7),
        "bias_l0": (12,),
        "weight_l0_reverse": (12, 7),
        "bias_l0_reverse": (12,),
        "weight_l1": (12, 12),
        "bias_l1": (12,),
        "weight_l1_reverse": (12, 12),
        "bias_l1_reverse": (12,),
    }


def test_repr() -> None:
    assert repr(lltm.LLTM(3, 4)) == "LLTM(3, 4)"
    assert repr(lltm.LLTM(3, 4, bias=False, alpha=0.5)) == "LLTM(3, 4, bias=False, alpha=0.5)"
    assert repr(lltm.LLTMSequence(3, 4)) == "LLTMSequence(3, 4)"
    module = lltm.LLTMSequence(3, 4, 2, False, True, 0.1, True, 0.5)
    assert repr(module) == (
        "LLTMSequence(3, 4, num_layers=2, bias=False, batch_first=True, dropout=0.1, "
        "bidirectional=True, alpha=0.5)"
    )


@pytest.mark.parametrize("name", MODULES)
def test_alpha_may_be_changed(name: str) -> None:
    module, made_with = MODULES[name](alpha=1.0), MODULES[name](alpha=0.25)
    made_with.load_state_dict(module.state_dict())
    module.alpha = 0.25
    x = torch.randn(INPUTS[name])
    for a, e in zip(_flat(module(x)), _flat(made_with(x)), strict=True):
        assert torch.equal(a, e)
    assert repr(module) == repr(made_with)


@pytest.mark.parametrize("name", MODULES)
def test_an_alpha_below_zero_is_refused_at_the_call_at_the_latest(name: str) -> None:
    module = MODULES[name]()

    def change_and_call() -> None:
        module.alpha = -1.0
        module(torch.randn(INPUTS[name]))

    with pytest.raises((RuntimeError, ValueError), match="alpha must be finite and not negative"):
        change_and_call()


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=cases.identify)
def test_dtype_and_device(name: str, dtype: torch.dtype) -> None:
    module = MODULES[name](dtype=dtype)
    assert {parameter.dtype for parameter in module.parameters()} == {dtype}
    assert {tensor.dtype for tensor in _flat(module(torch.randn(INPUTS[name], dtype=dtype)))} == {
        dtype
    }
    on_meta = MODULES[name](dtype=dtype, device="meta")
    for tensor in _flat(on_meta(torch.empty(INPUTS[name], dtype=dtype, device="meta"))):
        assert tensor.is_meta


@pytest.mark.parametrize("name", MODULES)
def test_results_can_be_detached_in_place(name: str) -> None:
    """As truncated backpropagation through time does it."""
    for result in _flat(MODULES[name]()(torch.randn(INPUTS[name]))):
        assert not result.detach_().requires_grad
    output, _ = lltm.LLTMSequence(F, S)(torch.randn(5, 2, F))
    assert not output.detach_().requires_grad


@pytest.mark.parametrize("name", MODULES)
def test_functional_call(name: str) -> None:
    module = MODULES[name]()
    other = {key: torch.randn_like(value) for key, value in module.named_parameters()}
    x = torch.randn(INPUTS[name])
    actual = _flat(torch.func.functional_call(module, other, (x,)))
    module.load_state_dict(other)
    for a, e in zip(actual, _flat(module(x)), strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize("name", MODULES)
def test_ensemble(name: str) -> None:
    """vmap over stacked modules, the parameters mapped."""
    modules = [MODULES[name](dtype=torch.float64) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(modules)
    x = torch.randn(INPUTS[name], dtype=torch.float64)

    def call(state: dict[str, Tensor]) -> list[Tensor]:
        return _flat(torch.func.functional_call(modules[0], state, (x,)))

    actual = torch.vmap(call)(parameters)
    for index, module in enumerate(modules):
        _assert_all_close([tensor[index] for tensor in actual], _flat(module(x)), "ensemble")


@pytest.mark.parametrize("name", MODULES)
def test_backend_of_the_environment(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = MODULES[name](dtype=torch.float64, device=cases.DEVICE)
    x = torch.randn(INPUTS[name], dtype=torch.float64, device=cases.DEVICE)
    expected = _flat(module(x))
    monkeypatch.setattr(lltm.backends, "DEFAULT", backend)
    _assert_all_close(_flat(module(x)), expected, backend)
