"""``lltm.cells.define``: which formulas are cells, and what the shipped ones compute."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cells_cases import DECAYING, assert_equal
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from lltm import cells
from lltm.cells import formulas

F64 = torch.float64


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


def assigns(z, state):
    z[0][0] = 1.0
    return (z[0],)


def applies(z, state):
    return (z[0].apply_(math.sin),)


def maps(z, state):
    return (z[0].map_(state[0], max),)


def compares_with_zero(z, state):
    return (z[0] if z[0].is_nonzero() else state[0],)


def converts(z, state):
    return (z[0] * complex(z[0]).real,)


def draws(z, state):
    return (F.dropout(z[0], 0.5),)


def widens(z, state):
    return (z[0].unsqueeze(1) + z[0],)


def unknown(z, state):
    return (torch.special.i0(z[0]),)


def wraps(z, state):
    return (z[0] % 2,)


def complex_sign(z, state):
    return (torch.sgn(z[0]) * z[0],)


@pytest.mark.parametrize(
    ("step", "line", "message"),
    [
        (sums, 1, "uses cumsum, which is not elementwise"),
        (changes, 2, r"changes a tensor in place \(add_"),
        (branches, 1, r"takes the value of a tensor \(bool\)"),
        (reads, 1, "uses select"),
        (compares_with_zero, 1, r"takes the value of a tensor \(is_nonzero\)"),
        (assigns, 1, r"changes a tensor in place \(setitem"),
        (applies, 1, r"changes a tensor in place \(apply"),
        (maps, 1, r"changes a tensor in place \(map"),
        (converts, 1, r"takes the value of a tensor \(complex\)"),
        (draws, 1, "uses"),
        (widens, 1, "uses unsqueeze"),
        (unknown, 1, "uses i0, which"),
        (complex_sign, 1, "uses sgn, which"),
        (wraps, 1, "uses remainder"),
    ],
)
def test_a_step_that_is_no_kernel_is_refused_with_its_line(step, line, message) -> None:
    where = f"{Path(__file__).name}:{step.__code__.co_firstlineno + line}: the step {message}"
    with pytest.raises(cells.StepError, match=where) as caught:
        cells.define(step, gates=1, states=1)
    assert "A step can use +, -, *, /, comparisons and abs," in str(caught.value)


@pytest.mark.parametrize("shape", [(20,), ()], ids=str)
def test_a_tensor_from_outside_is_refused_with_what_does_instead(shape: tuple[int, ...]) -> None:
    """A peephole or a time constant that is learnt, which no number can be."""
    learnt = torch.nn.Parameter(torch.ones(shape))

    def step(z, state):
        return torch.tanh(z[0] + learnt * state[0])

    line = step.__code__.co_firstlineno + 1
    message = rf":{line}: the step uses a tensor that is not an .* a state that the step returns"
    with pytest.raises(cells.StepError, match=message):
        cells.define(step, gates=1, states=1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return z[0].cumsum(0)", "the step uses cumsum"),
        ("return z[0] * (1.0 if scale > 0 else 2.0)", "a scalar of the step is compared"),
    ],
)
@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<ipython-input-3-0123456789ab>"])
def test_the_line_of_a_step_that_is_in_no_file_is_named(line: str, message: str, file: str) -> None:
    """From Python's prompt, ``python -c``, a notebook."""
    typed: dict[str, Any] = {}
    exec(compile(f"def step(z, state, *, scale=1.0):\n    {line}\n", file, "exec"), typed)
    with pytest.raises(cells.StepError, match=re.escape(f"{file}:2: {message}")):
        cells.define(typed["step"], gates=1, states=1)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda z, state: z, "must return 1 state, as states=1 says, got 2"),
        (lambda z, state: 1.0, "must return a tuple of tensors, got float"),
        (lambda z, state: (1, "h"), "must return a tuple of tensors, got (int, str)"),
        (lambda z, state: (z[0], "h"), "must return a tuple of tensors, got (Tensor, str)"),
        (lambda z, state: iter(z), "must return a tuple of tensors, got tuple_iterator"),
        (lambda z, state: [], "must return 1 state, as states=1 says, got 0"),
        (lambda z, state: np.tanh(z[0]), "takes the value of a tensor (array)"),
        (lambda z, state: torch.tensor(2.0) * z[0], "the step makes a tensor of a value (torch"),
        (lambda z, state: (z[0] > 0,), "must return states of the shape and dtype it gets"),
        (lambda z, state, *, rate: (z[0],), "rate is a keyword argument of the step and must have"),
        (lambda z, state, *, top=math.inf: (z[0],), "as its default, got inf; a large one"),
        (lambda z, state, *, top=math.nan: (z[0],), "a finite number as its default, got nan"),
        (lambda z, state, *, top=10**400: (z[0],), "a finite number as its default, got inf"),
        (lambda z, state, *, bias=1.0: z[0] + bias, "bias cannot be a keyword argument"),
        (lambda z, state, *, dropout=0.1: z[0], "such as dropout_value"),
    ],
)
def test_a_step_of_another_form_is_refused(step, message: str) -> None:
    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(step, gates=2, states=1)


def misspells(z, state, *, slope=0.5):
    return (z[0] * {"slope": slope}["slop"],)


def divides(z, state, *, slope=0.5):
    return (z[0] * (1 / (slope - 0.5)),)


def asserts(z, state, *, slope=0.5):
    assert len(state) == 2, "an LSTM has two"


def takes_a_gate_too_many(z, state, *, slope=0.5):
    return (z[2],)


def takes_the_states_for_one(z, state, *, slope=0.5):
    return state.tanh()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (misspells, "KeyError: 'slop'"),
        (divides, "ZeroDivisionError: "),  # CPython 3.14 has other words
        (asserts, "AssertionError: an LSTM has two"),
        (takes_a_gate_too_many, "IndexError: tuple index out of range"),
        (takes_the_states_for_one, "AttributeError: 'tuple' object has no attribute 'tanh'"),
    ],
)
def test_what_a_step_raises_is_said_with_its_line_and_its_arguments(step, message: str) -> None:
    where = f"{Path(__file__).name}:{step.__code__.co_firstlineno + 1}: the step {step.__name__}"
    call = "fails, called with tensors of shape [3], 2 in z, 1 in state, slope=0.5"
    with pytest.raises(cells.StepError, match=re.escape(f"{where} {call}: {message}")) as caught:
        cells.define(step, gates=2, states=1)
    assert type(caught.value.__cause__).__name__ == message.split(":", maxsplit=1)[0]


def doubles(z, state, *, factor=2.0):
    return factor * z[0], state[0]


@functools.wraps(doubles)
def decorated(*arguments, **options):
    return doubles(*arguments, **options)


class Doubling(torch.nn.Module):
    def forward(self, z, state):
        return doubles(z, state)


class Called:
    def __call__(self, z, state):
        return doubles(z, state)

    def method(self, z, state):
        return doubles(z, state)


@pytest.mark.parametrize(
    ("step", "written"),
    [
        (doubles, doubles),
        (decorated, doubles),
        (functools.partial(doubles, factor=3.0), doubles),
        (functools.partial(functools.partial(decorated), factor=3.0), doubles),
        (Doubling(), Doubling.forward),
        (Called(), Called.__call__),
        (Called().method, Called.method),
    ],
)
def test_where_a_step_is_written_is_named_however_it_comes(step, written) -> None:
    where = f"{Path(__file__).name}:{written.__code__.co_firstlineno}: the step must return 1 state"
    with pytest.raises(cells.StepError, match=where):
        cells.define(step, gates=1, states=1)


def test_a_class_is_named_by_itself_where_its_objects_are_the_steps() -> None:
    message = f"{Called!r}: the step Called fails, called with tensors of shape [3], 1 in z"
    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(Called, gates=1, states=1)


def test_the_arguments_of_a_step_with_two_shares_are_said() -> None:
    message = "tensors of shape [3], 2 in z_input, 2 in z_recurrent, 1 in state: TypeError:"
    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(lambda z, state: z[0], gates=2, states=1, split=True)


@dataclasses.dataclass
class Unhashable:
    """A step with a setting that may change under its kernels."""

    rate: float = 1.0

    def __call__(self, z: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> Tensor:
        return torch.tanh(self.rate * z[0])


class Surrogate(torch.autograd.Function):
    """A threshold with a slope of one's own."""

    @staticmethod
    def forward(x, slope):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.slope = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.slope, None


class Settings:
    """A step with settings that may change, and that is found by what it is, not what it holds."""

    def __init__(self) -> None:
        self.threshold, self.slope = 5.0, 0.5

    def __call__(self, z: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> Tensor:
        return Surrogate.apply(z[0] + state[0] - self.threshold, self.slope)


@pytest.mark.parametrize(
    ("setting", "reader"), [("threshold", Settings.__call__), ("slope", Surrogate.backward)]
)
def test_a_step_is_refused_where_what_it_reads_has_changed(setting, reader) -> None:
    """In a notebook, one changes a number and runs the line with define again."""
    step = Settings()
    made = cells.define(step, gates=1, states=1)
    assert cells.define(step, gates=1, states=1) == made
    setattr(step, setting, 0.25)
    *_, last = [line for *_, line in reader.__code__.co_lines() if line]
    message = f":{last}: what the step reads, such as a global or an attribute, has changed"
    with pytest.raises(cells.StepError, match=message):
        cells.define(step, gates=1, states=1)
    setattr(other := Settings(), setting, 0.25)
    assert cells.define(other, gates=1, states=1) != made


def test_arguments_of_define_are_checked() -> None:
    with pytest.raises(TypeError, match="step must be a function, got int"):
        cells.define(3, gates=1, states=1)
    with pytest.raises(TypeError, match="a function as it is written, got a result"):
        cells.define(torch.compile(sums), gates=1, states=1)
    with pytest.raises(TypeError, match=r"must be hashable, .* Unhashable is not; a dataclass"):
        cells.define(Unhashable(), gates=1, states=1)
    with pytest.raises(ValueError, match="gates must be greater than zero, got 0"):
        cells.define(sums, gates=0, states=1)
    with pytest.raises(TypeError, match="heads must be an int, got float"):
        cells.define(sums, gates=1, states=1, heads=2.0)
    with pytest.raises(TypeError, match="step must be a function written in Python, got <built-in"):
        cells.define(torch.tanh, gates=1, states=1)


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_a_cell_is_defined_whatever_the_default_device(device: str) -> None:
    """A script that starts with torch.set_default_device("cuda"), say, even where there is none."""
    with torch.device(device):
        made = cells.define(DECAYING.step, gates=2, states=2, split=True)
    assert made == DECAYING


def switching(z, state):
    """In inference mode, torch hands over the choice of two numbers as it is written."""
    return z[0] * torch.where(state[0] > 0, 1.0, 0.5)


@pytest.mark.parametrize("mode", [torch.inference_mode, FakeTensorMode])
def test_a_cell_is_defined_under_any_mode(mode: Callable[[], Any]) -> None:
    """A model is made in a function for inference, say, or to be counted and not filled."""
    with mode():
        made = cells.define(switching, gates=1, states=1)
    assert made == cells.define(switching, gates=1, states=1)


def widening(z, state):
    return (z[0].double() * state[0]).to(z[0].dtype)


@pytest.fixture
def default_dtype() -> Iterator[Callable[[torch.dtype], None]]:
    """What sets torch's, until the test has ended."""
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


def test_a_cell_is_defined_with_float64_as_the_default_dtype(default_dtype) -> None:
    """torch makes numbers to choose from tensors of it, and float32 ones beside them wider."""

    def choosing(z, state):
        return z[0] * torch.where(state[0] > 0, 1.0, 0.7)

    default_dtype(F64)
    cells.define(choosing, gates=1, states=1)
    with pytest.raises(cells.StepError, match="_to_copy cannot be used here: a cell is computed"):
        cells.define(widening, gates=1, states=1)


@pytest.mark.parametrize("dtype", [F64, torch.bfloat16], ids=str)
def test_a_cell_is_defined_again_with_another_default_dtype(default_dtype, dtype) -> None:
    """A trainer sets it to that of the model, while it makes one."""
    made = cells.define(switching, gates=1, states=1)
    default_dtype(dtype)
    assert cells.define(switching, gates=1, states=1) == made


@pytest.mark.parametrize("what", [sums, cells.LSTM(3, 4), None])
@pytest.mark.parametrize(
    "call", [cells.prepare, cells.prove, lambda cell: cells.attach(cell, "cell.so")]
)
def test_what_is_no_cell_is_refused(call, what) -> None:
    kind = type(what).__name__
    message = f"cell must be what lltm.cells.define() returns, got {kind}"
    with pytest.raises(TypeError, match=re.escape(message)):
        call(what)


@pytest.mark.parametrize("call", [cells.prepare, cells.prove])
def test_a_device_without_kernels_is_refused(call) -> None:
    with pytest.raises(ValueError, match="device must be cpu or cuda, got meta"):
        call(DECAYING, "meta")


def test_scalars() -> None:
    assert DECAYING.scalar_values({"floor": 0.3}) == (0.5, 0.3)
    with pytest.raises(TypeError, match="decaying has no scalar 'alpha'; it has: rate, floor"):
        DECAYING.scalar_values({"alpha": 1.0})
    positional = cells.define(lambda z, state, rate=0.5: rate * z[0], gates=1, states=1)
    with pytest.raises(TypeError, match=r"'rate'; it has: none \(the arguments behind the step's"):
        cells.Sequence(positional, 3, 4, rate=0.3)
    with pytest.raises(ValueError, match="rate must be finite, got nan"):
        DECAYING.scalar_values({"rate": math.nan})
    torch.manual_seed(0)
    one = cells.Sequence(DECAYING, 3, 4)
    other = cells.Sequence(DECAYING, 3, 4, rate=0.25)
    other.load_state_dict(one.state_dict())
    x = torch.randn(5, 2, 3)
    assert not torch.equal(one(x)[0], other(x)[0])
    assert repr(other) == "Sequence(decaying, 3, 4, rate=0.25)"
