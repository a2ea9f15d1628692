"""The modules of ``lltm.cells``: dtypes, copies, autograd and arguments."""

from __future__ import annotations

import copy
import functools
import pickle
import re

import cases
import numpy as np
import pytest
import torch
from cells_cases import CELLS, EACH_CELL, assert_equal
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import lltm
from lltm import cells
from lltm.cells import formulas
from lltm.cells._module_checks import state_name

F64 = torch.float64


def test_a_module_shows_what_differs_from_the_defaults() -> None:
    assert cells.LLTM(3, 8).extra_repr() == "lltm, 3, 8"
    assert cells.SLSTM(3, 8, heads=2, bias=False).extra_repr() == "slstm, 3, 8, heads=2, bias=False"
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


@pytest.mark.parametrize("reset", [False, True], ids=["", "resets"])
@EACH_CELL
def test_autocast(name: str, reset: bool) -> None:
    """Everything in bfloat16, as torch casts for its own recurrent cells; gradients in float32."""
    torch.manual_seed(0)
    rnn = cells.Sequence(CELLS[name], 3, 8)
    low = cells.Sequence(CELLS[name], 3, 8, dtype=torch.bfloat16)
    low.load_state_dict(rnn.state_dict())
    x = torch.randn(4, 2, 3)
    begins = torch.rand(4, 2) < 0.5 if reset else None
    start, low_start = (
        states_of(rnn, change) if reset else None for change in (torch.clone, Tensor.bfloat16)
    )
    with torch.autocast("cpu", torch.bfloat16):
        output, states = rnn(x, reset=begins, reset_state=start)
    expected = low(x.bfloat16(), reset=begins, reset_state=low_start)
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


class Doubled(nn.Module):
    def forward(self, weights: Tensor) -> Tensor:
        return 2 * weights


@pytest.mark.parametrize(
    ("make", "weight", "shape"),
    [
        (cells.LSTM, "weight_hh_l0", (4, 2, 3)),
        (cells.LLTM, "weight_l0", (4, 2, 3)),
        (functools.partial(cells.Cell, formulas.GRU), "weights", (2, 3)),
    ],
)
def test_a_parametrized_weight(make, weight: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module, x = make(3, 8), torch.randn(shape)
    doubled = copy.deepcopy(module)
    doubled.load_state_dict({**module.state_dict(), weight: 2 * getattr(module, weight)})
    nn.utils.parametrize.register_parametrization(module, weight, Doubled())
    assert_equal(module(x), doubled(x))


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


def states_of(rnn: cells.Sequence, change=torch.clone) -> tuple[Tensor, ...]:
    """For two rows of size 8."""
    return tuple(change(torch.zeros(1, 2, 8)) for _ in range(rnn.cell.states))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda rnn: rnn(3), TypeError, "input must be a Tensor or a PackedSequence, got int"),
        (lambda rnn: rnn(torch.randn(3)), RuntimeError, "input must have shape [T, B, F], or"),
        (lambda rnn: rnn(torch.randn(4, 2, 5)), RuntimeError, "input_features = 3 as its last"),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), 1),
            TypeError,
            "a tuple of the cell's {count} states",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), (*states_of(rnn)[1:], torch.randn(1, 3, 8))),
            RuntimeError,
            "hx: {last} must have shape [1, 2, 8], got [1, 3, 8]",
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
            lambda rnn: rnn(
                torch.randn(4, 2, 3), reset=torch.zeros(4, 2, dtype=torch.bool, device="meta")
            ),
            RuntimeError,
            "reset must be on the device of input, cpu, got meta",
        ),
        (
            lambda rnn: rnn(torch.randn(4, 2, 3), reset_state=states_of(rnn)),
            RuntimeError,
            "reset_state needs reset, which is None",
        ),
        (
            lambda rnn: torch.func.functional_call(
                rnn, {"weight_l0": torch.zeros(7, 11)}, torch.randn(4, 2, 3)
            ),
            RuntimeError,
            "weights must have shape [G * S, S / heads + F] = [{rows}, {columns}], got [7, 11]",
        ),
        (
            lambda rnn: torch.func.functional_call(
                rnn, {"weight_l0": torch.zeros(7, 3)}, torch.randn(4, 2, 3)
            ),
            RuntimeError,
            "weights must have shape [G * S, S / heads + F] = [{rows}, {columns}], got [7, 3]",
        ),
    ],
)
@EACH_CELL
def test_arguments_of_a_call_are_checked(name: str, call, error, message: str) -> None:
    cell = CELLS[name]
    words = message.format(
        count=cell.states,
        last=state_name(cell.states - 1),
        rows=cell.gates * 8,
        columns=8 // cell.heads + 3,
    )
    with pytest.raises(error, match=re.escape(words)):
        call(cells.Sequence(cell, 3, 8))


KINDS = {
    "sparse": (Tensor.to_sparse, "must be a dense tensor (strided), got torch.sparse_coo"),
    "nested": (
        lambda state: torch.nested.nested_tensor(list(state)),
        "must be a dense tensor (strided), got nested",
    ),
    "double": (Tensor.double, "must have the dtype of input, torch.float32, got torch.float64"),
    "bfloat16": (
        Tensor.bfloat16,
        "must have the dtype of input, torch.float32, got torch.bfloat16",
    ),
    "meta": (lambda state: state.to("meta"), "must be on the device of input, cpu, got meta"),
}
"""Of a state that do not fit a float32 input on the CPU: how it comes to be, and what is said."""


@pytest.mark.parametrize("kind", KINDS)
@EACH_CELL
def test_a_state_of_another_kind_than_the_input(name: str, kind: str) -> None:
    """All are, or the last alone, which torch would promote with the others."""
    change, message = KINDS[kind]
    rnn, x = cells.Sequence(CELLS[name], 3, 8), torch.randn(4, 2, 3)
    last = state_name(rnn.cell.states - 1)
    every, one = states_of(rnn, change), states_of(rnn)
    one = (*one[:-1], change(one[-1]))
    for states, which in ((every, "h"), (one, last)):
        with pytest.raises(RuntimeError, match=re.escape(f"hx: {which} {message}")):
            rnn(x, states)
    with pytest.raises(RuntimeError, match=re.escape(f"reset_state: {last} {message}")):
        rnn(x, reset=torch.zeros(4, 2, dtype=torch.bool), reset_state=one)
    step = cells.Cell(CELLS[name], 3, 8)
    with pytest.raises(RuntimeError, match=re.escape(f"state: {last} {message}")):
        step(x[0], (*(each[0] for each in one[:-1]), change(torch.zeros(2, 8))))


@EACH_CELL
def test_autocast_takes_states_of_any_dtype(name: str) -> None:
    rnn, x = cells.Sequence(CELLS[name], 3, 8), torch.randn(4, 2, 3)
    states = states_of(rnn)
    with torch.autocast("cpu", torch.bfloat16):
        found = rnn(x, (*states[:-1], states[-1].bfloat16()))
        assert_equal(found, rnn(x, states))


@pytest.mark.parametrize(
    "make",
    [
        cells.LSTM,
        cells.RNN,
        cells.SLSTM,
        functools.partial(cells.Sequence, formulas.LSTM),
        lltm.LLTMSequence,
    ],
)
def test_dropout_of_one_layer_is_warned_of(make) -> None:
    """At the line that makes the module: Python shows that line, and a warning once for each."""
    with pytest.warns(UserWarning, match=r"dropout=0.5 has no effect with num_layers=1") as given:
        make(3, 8, dropout=0.5)
    assert [warning.filename for warning in given] == [__file__]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cells.Sequence(nn.LSTM, 3, 8), TypeError, "what lltm.cells.define() returns"),
        (
            lambda: cells.SLSTM(3, 8, heads=3),
            ValueError,
            "a multiple of the cell's heads, 3, got 8",
        ),
        (lambda: cells.SLSTM(3, 8, heads=0), ValueError, "heads must be greater than zero, got 0"),
        (lambda: cells.SLSTM(3, 8, heads=2.0), TypeError, "heads must be an int, got float"),
        (lambda: cells.LSTM(3, 8, dropout=2.0), ValueError, "dropout must be a probability"),
        (lambda: cells.LSTM(3, 8, 2, dropout=True), TypeError, "must be a float, got bool"),
        (lambda: cells.LSTM(3, 8, 2, 0.5), TypeError, "bias must be a bool, got float"),
        (lambda: cells.GRU(3, 8, batch_first=1), TypeError, "batch_first must be a bool, got int"),
        (
            lambda: cells.LSTM(3, 8, bidirectional="no"),
            TypeError,
            "bidirectional must be a bool, got str",
        ),
        (lambda: cells.Cell(formulas.LSTM, 3, 8, None), TypeError, "bias must be a bool, got None"),
        (lambda: cells.LLTM(3, 8, alpha=10**400), ValueError, "alpha must be finite, got 1000"),
        (lambda: cells.LLTM(3, 8, alpha=float("nan")), ValueError, "alpha must be finite, got nan"),
        (lambda: cells.LLTM(3, 8, alpha=np.float32("inf")), ValueError, "must be finite, got inf"),
        (lambda: cells.Cell(formulas.LSTM, 0, 8), ValueError, "input_features must be greater"),
        (lambda: cells.LLTM(3, 8, beta=2.0), TypeError, "lltm has no scalar 'beta'; it has: alpha"),
    ],
)
def test_arguments_of_a_module_are_checked(make, error, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()
