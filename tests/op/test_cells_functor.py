"""The functor of a cell: its text, and that it computes the step and its derivative.

The text is compiled for one double at a time, so no kernel is called.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cells_cases import CELLS
from cells_compiled import library_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from lltm import cells, jit
from lltm.cells import formulas
from lltm.cells._functor import Functor, functor

pytestmark = pytest.mark.subprocess
MATH = Path(__file__).with_name("cells_scalar_math.h")
ENTRY = """
extern "C" void forward_{index}(const double* in, double* out, const double* scalars) {{
  using C = {struct}<ScalarMath>;
  double z[C::kPre], state[C::kStates];
  for (double& value : z) value = *in++;
  for (double& value : state) value = *in++;
  const auto forward = C::forward(z, state, scalars);
  for (double value : forward.state) *out++ = value;
  double grad[C::kStates];
  for (double& value : grad) value = *in++;
  const auto backward = C::backward(forward.saved, state, forward.state, grad, scalars);
  for (double value : backward.d_z) *out++ = value;
  for (double value : backward.d_state) *out++ = value;
}}
"""


@dataclass(frozen=True)
class Compiled:
    """Some cells' functors in one library."""

    definitions: tuple[cells.Definition, ...]
    library: ctypes.CDLL

    @staticmethod
    def of(
        definitions: Sequence[cells.Definition],
        folder: Path,
        functors: Sequence[Functor] | None = None,
    ) -> Compiled:
        """From functors that are given, or the generated ones."""
        parts = [MATH.read_text(encoding="utf-8")]
        for index, made in enumerate(functors or [functor(each) for each in definitions]):
            entry = ENTRY.format(index=index, struct=made.struct)
            parts.append(f"namespace cell_{index} {{\n{made.text}{entry}}}\n")
        return Compiled(tuple(definitions), library_of("\n".join(parts), folder))

    def __call__(
        self, index: int, inputs: Tensor, scalars: Sequence[float]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For rows ``[z, state, grad_state]``: the new states, and gradients of z and states."""
        definition = self.definitions[index]
        pre, states = definition.pre_activations, definition.states
        out = torch.empty(len(inputs), pre + 2 * states, dtype=torch.float64)
        numbers = (ctypes.c_double * max(1, len(scalars)))(*scalars)
        function = getattr(self.library, f"forward_{index}")
        for row, result in zip(inputs, out, strict=True):
            function(ctypes.c_void_p(row.data_ptr()), ctypes.c_void_p(result.data_ptr()), numbers)
        return out.split([states, pre, states], dim=1)


def expected(
    definition: cells.Definition, inputs: Tensor, scalars: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor]:
    pre, states = definition.pre_activations, definition.states
    z, state, grad = (part.clone() for part in inputs.split([pre, states, states], dim=1))
    z.requires_grad_()
    state.requires_grad_()
    new = definition.advance(z.unbind(1), state.unbind(1), scalars)
    stacked = torch.stack(new, 1)
    grads = torch.autograd.grad(stacked, (z, state), grad, materialize_grads=True)
    return stacked.detach(), *grads


def drawn(definition: cells.Definition, rows: int, scale: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = definition.pre_activations + 2 * definition.states
    return scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def assert_computes(compiled: Compiled, index: int, inputs: Tensor) -> None:
    definition = compiled.definitions[index]
    scalars = [1.25 * default + 0.05 for _, default in definition.scalars]
    actual = compiled(index, inputs, scalars)
    for a, e in zip(actual, expected(definition, inputs, scalars), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled.of(tuple(CELLS.values()), tmp_path_factory.mktemp("functors"))


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["small", "large"])
@pytest.mark.parametrize("index", range(len(CELLS)), ids=list(CELLS))
def test_functors_of_the_cells(shipped: Compiled, index: int, scale: float) -> None:
    """Small values and those where sigmoid and tanh are flat and exp overflows a float."""
    definition = shipped.definitions[index]
    inputs = drawn(definition, 200, scale)
    inputs[0] = 0
    if definition.name == "slstm":  # its normaliser n is positive
        inputs[:, definition.pre_activations + 2].abs_().add_(0.1)
    assert_computes(shipped, index, inputs)


def test_the_functor_of_the_library_is_the_formula_of_the_lltm(tmp_path: Path) -> None:
    """Bit for bit, whatever the names that this torch gives to what it traces."""
    text = (jit.source_directory() / "lltm_cell.inc").read_text(encoding="utf-8")
    generated = functor(formulas.LLTM)
    pair = (formulas.LLTM, formulas.LLTM)
    compiled = Compiled.of(pair, tmp_path, [replace(generated, text=text), generated])
    for scale in (1.0, 30.0):
        inputs = drawn(formulas.LLTM, 200, scale)
        for a, e in zip(compiled(0, inputs, [0.7]), compiled(1, inputs, [0.7]), strict=True):
            assert a.equal(e)


def test_the_text_is_the_same_every_time() -> None:
    """It names the library in the cache."""
    made = functor(CELLS["slstm"])
    functor.cache_clear()
    assert functor(CELLS["slstm"]) == made
    assert functor(CELLS["slstm_heads"]) == made


def test_one_thread_traces_and_lives_on() -> None:
    """What torch 2.10, built for CUDA and without a GPU, has of the last one must not be gone."""
    threads = set()

    def traced(factor: float) -> Callable[..., Tensor]:
        def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
            threads.add(threading.current_thread())
            return torch.tanh(factor * z[0])

        return step

    for factor in (0.5, 0.25):
        cells.define(traced(factor), gates=1, states=1)
    (worker,) = threads - {threading.current_thread()}
    assert worker.is_alive()


@pytest.mark.skipif(
    torch.cuda.is_available(),
    reason="not run: autograd, which has a thread for each GPU, works in no fork of its process",
)
def test_a_fork_traces_too(tmp_path: Path) -> None:
    """None of its parent's threads is in it, and without a GPU autograd has had none."""
    program = """
import os
from lltm.cells import formulas
from lltm.cells._functor import functor
expected = functor(formulas.LSTM)
child = os.fork()
if child == 0:
    functor.cache_clear()
    os._exit(functor(formulas.LSTM) != expected)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, cwd=tmp_path, timeout=120, check=False).returncode == 0


def test_a_step_is_traced_in_anomaly_mode() -> None:
    """Which holds for all threads, and looks for NaN where a trace has no values."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        return torch.tanh(z[0]) * torch.sigmoid(state[0])

    with torch.autograd.set_detect_anomaly(True):
        cells.define(step, gates=1, states=1)
        assert torch.is_anomaly_enabled()
        assert torch.is_anomaly_check_nan_enabled()


def test_anomaly_mode_that_begins_during_a_trace_stays() -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        if threading.get_ident() != caller:  # in the thread that traces, as from any other
            torch.autograd.set_detect_anomaly(True, check_nan=False)
        return torch.tanh(z[0] * state[0])

    caller = threading.get_ident()
    try:
        cells.define(step, gates=1, states=1)
        assert torch.is_anomaly_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_the_order_of_statements_does_not_name_the_ops() -> None:
    """Torch 2.14 traces the comparison of the sLSTM before what it is multiplied with."""
    made = functor(formulas.SLSTM)
    lines = made.text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if "const auto" in line)
    swapped = [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]
    changed = [*lines[:at], lines[at].replace(";", " + 1;"), *lines[at + 1 :]]
    assert replace(made, text="".join(swapped)).namespace == made.namespace
    assert replace(made, text="".join(changed)).namespace != made.namespace


@pytest.mark.parametrize(
    ("name", "saved", "direct"),
    [("lltm", 3, False), ("lstm", 4, False), ("gru", 4, True), ("slstm", 4, False)],
)
def test_what_forward_keeps(name: str, saved: int, direct: bool) -> None:
    """As few values as kernels written by hand would keep."""
    text = functor(CELLS[name]).text
    assert f"kSaved = {saved};" in text
    assert f"kDirect = {str(direct).lower()};" in text


def every_operation(z: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What a step may use, in one."""
    a, b = z
    (h,) = state
    terms = [
        F.softplus(a),
        F.softplus(a, beta=2.0, threshold=1.5),
        F.elu(b, 0.3),
        F.selu(b),
        F.celu(a, 0.7),
        F.relu(h),
        F.relu6(3 * a),
        F.silu(a),
        F.leaky_relu(b, 0.1),
        F.hardtanh(a, -0.5, 0.7),
        F.hardsigmoid(2 * a),
        F.softsign(b),
        F.logsigmoid(a),
        torch.where(a > 0, a * a, b.abs()),
        torch.where((a > b) & ~(h > 0), b, 0.5),
        torch.where(torch.logical_and(a, b > 0), a, b) + torch.where(a > 0, 1.0, 0.25) * b,
        (a > b) * h + (b > 0).to(b.dtype) * a + (h > 0).float() * b + (1 + (a > 0)) * h,
        ((a > 0) * 2 + 1) * b + (a > 0) * 1 * h + torch.where((b > 0) == (h > 0), a, b),
        a.clamp(-0.5, 0.5) + b.clamp(min=0.1) + h.clamp(max=0.2),
        a**2 + b**3 + (1 + a.abs()) ** -2 + (1 + b * b) ** 0.5 + (2 + a * a) ** -0.5,
        torch.sqrt(1 + a * a) + torch.rsqrt(1 + b * b) + 1 / (1 + h * h),
        torch.log(1 + a * a) + torch.log1p(b * b) + torch.expm1(a),
        torch.add(torch.expm1(a), 1, alpha=2),
        torch.lerp(a, b, torch.sigmoid(h)) + torch.lerp(a, b, 0.3),
        torch.addcmul(a, b, h, value=0.5) + torch.addcdiv(a, b, 2 + h * h),
        torch.maximum(a, b) + torch.minimum(a, h),
        torch.sign(a) * b + a.detach() * b + torch.zeros_like(a) + torch.ones_like(b) * h,
        (a - 1) + (1 - b) - 2 * h / 3,
        a.masked_fill(b > 0.5, 0.25),
        a.clone() * b,
        True * a + (h + True) + False * b + b.masked_fill(a > 0, True),
    ]
    total = terms[0]
    for weight, term in enumerate(terms[1:]):
        total = total + (0.1 + 0.01 * weight) * term
    return (total,)


def test_every_operation(tmp_path: Path) -> None:
    definition = cells.define(every_operation, gates=2, states=1)
    compiled = Compiled.of([definition], tmp_path)
    assert_computes(compiled, 0, drawn(definition, 400, 1.5))


@pytest.mark.parametrize("number", [1e19, -1e30, 2.0**53 + 2, 2.0**64, 3e38, -3e-310])
def test_numbers_of_any_size(number: float, tmp_path: Path) -> None:
    """An integer of C++ has 64 bits, and the compiler is told to warn of nothing."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        (a,), (h,) = z, state
        return number * a + h, torch.where(a > 0, a, number)

    definition = cells.define(lambda z, state: step(z, state[:1]), gates=1, states=2)
    assert_computes(Compiled.of([definition], tmp_path), 0, drawn(definition, 20, 1.0))


def test_numbers_are_those_of_torchs_default_dtype_where_it_has_them(tmp_path: Path) -> None:
    """torch computes in float32 what is made of numbers and masks alone."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, rate: float = 0.3) -> Tensor:
        (a, b), (h,) = z, state
        chosen = torch.where(a > 0, 0.1, 0.7) * a + torch.where(b > 0, rate, 2 - rate) * b
        spikes = (h > 0).float() * 0.1 * b + (1 - (a > b).float()) * h
        equal = torch.where(torch.where(a > 0, 0.1, 0.7) > 0.1, a, b)  # 0.1 is not more than itself
        return chosen + spikes + equal + torch.where(a > 0, a, 0.1) * (b + 0.7)

    definition = cells.define(step, gates=2, states=1)
    assert_computes(Compiled.of([definition], tmp_path), 0, drawn(definition, 100, 1.0))


def test_scalars_are_computed_with(tmp_path: Path) -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, rate: float = 0.7) -> Tensor:
        (a,), (h,) = z, state
        sums = (rate + 1) * a + (1 + rate) * h + (rate - 2) * a * a + (2 - rate) * h * h
        products = (rate * 2) * a + (3 * rate) * h + (rate / 3) * a * h + (1 / rate) * a + -rate * h
        ends = torch.lerp(a, h, rate) + a.clamp(rate, -rate)  # the latter is all -rate
        return sums + products + rate * a + (1 - -rate) * a * h + ends

    definition = cells.define(step, gates=1, states=1)
    assert_computes(Compiled.of([definition], tmp_path), 0, drawn(definition, 50, 1.0))


@pytest.mark.parametrize("default", [-1.0, 1.0, 0.0, -0.0, 0.5, -2.0, 1.7e308])
def test_a_scalars_default_is_no_number_of_the_step(default: float, tmp_path: Path) -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, low: float = default) -> Tensor:
        (a,), (h,) = z, state
        chosen = torch.where(a > 0, a, 0.0) + torch.where(h > 0, h, -math.inf).clamp(min=low)
        return 1 - a.clamp(min=low) + torch.tanh(h) * (1 - low) - 2 * h + 0.5 * low + chosen

    definition = cells.define(step, gates=1, states=1)
    compiled = Compiled.of([definition], tmp_path)
    inputs = drawn(definition, 50, 1.0)
    for scalars in ([default], [0.25]):
        pairs = zip(
            compiled(0, inputs, scalars), expected(definition, inputs, scalars), strict=True
        )
        for a, e in pairs:
            torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_celu_takes_a_scalar(tmp_path: Path) -> None:
    """In its derivative torch has the reciprocal of a float, which is that of no double.

    So have the kernels: what is written is what ``prove`` compares with, in float64 exactly.
    """

    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, alpha: float = 1.0) -> Tensor:
        return F.celu(z[0], alpha) + state[0]

    definition = cells.define(step, gates=1, states=1)
    compiled, inputs = Compiled.of([definition], tmp_path), drawn(definition, 50, 1.0)
    found, wanted = compiled(0, inputs, [0.7]), expected(definition, inputs, [0.7])
    for a, e in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-12)


def test_expm1_keeps_its_derivative_where_it_is_tiny(tmp_path: Path) -> None:
    """torch's own is expm1(x) + 1, which is 0 for x below -37."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (torch.expm1(z[0]),)

    compiled = Compiled.of([cells.define(step, gates=1, states=1)], tmp_path)
    _, d_z, _ = compiled(0, torch.tensor([[-50.0, 0.0, 1.0]], dtype=torch.float64), [])
    assert d_z.item() == pytest.approx(math.exp(-50), rel=1e-12)


def test_nan_has_the_sign_that_torch_gives_it(tmp_path: Path) -> None:
    """In the derivative of abs, too."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return torch.sign(z[0]), state[1].abs()

    definition = cells.define(step, gates=1, states=2)
    inputs = drawn(definition, 3, 1.0)
    inputs[1, 0] = inputs[2, 2] = math.nan
    assert_computes(Compiled.of([definition], tmp_path), 0, inputs)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda z, rate: torch.where(z > 0, z, z) if rate > 0.5 else z, "compared"),
        (lambda z, rate: z if rate == 1.0 else 2 * z, "compared"),
        (lambda z, rate: z if rate != 0 else 2 * z, "compared"),
        (lambda z, rate: z if rate in (1, 2) else 2 * z, "compared"),
        (lambda z, rate: z ** int(rate), "rounded"),
        (lambda z, rate: z * round(rate), "rounded"),
        (lambda z, rate: z * math.floor(rate), "rounded"),
        (lambda z, rate: z * (rate // 1), "rounded"),
        (lambda z, rate: z if rate.is_integer() else 2 * z, "rounded"),
        (lambda z, rate: z * abs(rate), "cannot be followed"),
        (lambda z, rate: z * math.copysign(1, rate), "cannot be followed"),
        (lambda z, rate: z * math.sqrt(rate), "cannot be followed"),
        (lambda z, rate: z * math.exp(rate), "such as torch.exp(torch.full_like(x, rate)) for"),
        (lambda z, rate: z * random.random(), "another one each time"),
        (lambda z, rate: z ** (1 + rate), "the exponent must be a constant: -3.5"),
        (lambda z, rate: z**1.7, "to 4.5; of a positive x, write torch.exp(exponent * torch.log("),
        (lambda z, rate: z * torch.tensor(2.0), "lift_fresh"),
        (lambda z, rate: z * ((z > 0) + (z > 1)), "add.Tensor cannot be used here: combine what"),
        (
            lambda z, rate: torch.where(torch.where(z > 0, z > 1, z < 0), z, rate),
            "with &, | and ~",
        ),
        (lambda z, rate: z * ((z > 0) * 2 & (z > 1) * 1), "not for bits"),
        (lambda z, rate: z.float() * z, "computed in one dtype"),
        (lambda z, rate: z + torch.full_like(z, 2.7, dtype=torch.int64), "holds no fraction"),
        (lambda z, rate: z + (z > 0).to(torch.uint8).neg(), "it computes in torch.uint8"),
        (lambda z, rate: z + (z > 0).half() * 0.1, "it computes in torch.float16"),
    ],
)
def test_what_cannot_be_followed(body: Callable[..., Tensor], message: str) -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, rate: float = 1.0) -> Tensor:
        return body(z[0], rate)

    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(step, gates=1, states=1)


@pytest.mark.parametrize(
    ("last", "beyond", "message"), [(-3.5, -4.0, "constant: -3.5, "), (4.5, 5.0, " to 4.5;")]
)
def test_exponents_up_to_those_that_the_message_names(
    last: float, beyond: float, message: str
) -> None:
    """A derivative has one less, which has to have a text, too."""

    def step_of(exponent: float) -> Callable[..., tuple[Tensor, ...]]:
        return lambda z, state: ((1 + z[0].abs()) ** exponent,)

    cells.define(step_of(last), gates=1, states=1)
    with pytest.raises(cells.StepError, match=re.escape(message)):
        cells.define(step_of(beyond), gates=1, states=1)


def test_a_step_without_scalars_that_changes_is_not_said_to_have_one() -> None:
    """The first of its traces and the third are the same."""
    calls = itertools.count()

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        return torch.tanh(z[0]) if next(calls) % 2 else torch.sigmoid(z[0])

    with pytest.raises(cells.StepError, match="the step is another one each time"):
        cells.define(step, gates=1, states=1)


def line_of(function: Callable[..., Any]) -> str:
    """What a message begins with that names the first line of a function of this file."""
    return re.escape(f"{Path(__file__).name}:{function.__code__.co_firstlineno}: ")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, rate: x**7, "pow.Tensor_Scalar cannot be used here: the exponent must be"),
        (lambda x, rate: torch.pow(x, rate + 1), "pow.Tensor_Scalar cannot be used here: the"),
        (lambda x, rate: x ** (2 * rate), "pow.Tensor_Scalar cannot be used here: the exponent"),
        (lambda x, rate: x.float() * x, "_to_copy cannot be used here: a cell is computed in one"),
        (lambda x, rate: x.float(), "_to_copy cannot be used here: a cell is computed in one"),
        (lambda x, rate: x * ((x > 0) + (x > 1)), "add.Tensor cannot be used here: combine what"),
        (lambda x, rate: x + (x > 0).half() * 0.1, "mul.Tensor cannot be used here: it computes"),
        (lambda x, rate: x + (x > 0).bfloat16() / 3, "div.Tensor cannot be used here: it computes"),
        (lambda x, rate: torch.full_like(x, 0.5, dtype=torch.int64), "full_like cannot be used"),
    ],
)
def test_the_line_of_what_an_operation_cannot_do_is_named(body, message: str) -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, rate: float = 2.0) -> Tensor:
        x = torch.tanh(z[0])
        return x + body(x, rate)

    with pytest.raises(cells.StepError, match=f"{line_of(body)}.*{re.escape(message)}"):
        cells.define(step, gates=1, states=1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, rate: 2.0**rate * x, "a scalar of the step is used in a way that cannot be"),
        (lambda x, rate: x * math.exp(rate), "a scalar of the step is used in a way that cannot"),
        (lambda x, rate: x * math.sqrt(rate), "a scalar of the step is used in a way that cannot"),
        (lambda x, rate: x * random.random(), "the step is another one each time that it is"),
        (lambda x, rate: x / x.numel(), "the step depends on the shape or dtype of its tensors"),
        (lambda x, rate: x + torch.finfo(x.dtype).eps, "the step depends on the shape or dtype"),
        (lambda x, rate: x if x.dtype == torch.float64 else x.tanh(), "the step depends on the"),
    ],
)
def test_the_line_of_what_no_kernel_follows_is_named(body, message: str) -> None:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, rate: float = 2.0) -> Tensor:
        x = torch.tanh(z[0])
        return 2 * body(x, rate)

    with pytest.raises(cells.StepError, match=f"{line_of(body)}{re.escape(message)}"):
        cells.define(step, gates=1, states=1)


class Spike(torch.autograd.Function):
    """A threshold, whose derivative is 0 and of no use, with another one."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient / (1 + 10 * x.abs()) ** 2


class OldSpike(torch.autograd.Function):
    """As before torch.func: forward has the context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    backward = Spike.backward


def spiking(function: type[torch.autograd.Function]) -> Callable[..., tuple[Tensor, ...]]:
    def step(z: Sequence[Tensor], state: Sequence[Tensor], *, decay: float = 0.9) -> Any:
        spike, voltage = state
        voltage = decay * voltage * (1 - spike) + z[0]
        return function.apply(voltage - 1), voltage

    return step


def test_a_derivative_of_the_users_own(tmp_path: Path) -> None:
    definition = cells.define(spiking(Spike), gates=1, states=2)
    compiled = Compiled.of([definition], tmp_path)
    inputs = drawn(definition, 100, 1.5)
    assert_computes(compiled, 0, inputs)
    _, d_z, _ = compiled(0, inputs, [0.9])
    assert bool((d_z != inputs[:, -1:]).all())  # it is not that of the voltage alone


def test_a_function_that_torch_func_does_not_take_is_refused() -> None:
    step = spiking(OldSpike)
    message = (
        rf":{step.__code__.co_firstlineno + 3}: .* by torch.func: RuntimeError: .* setup_context"
    )
    with pytest.raises(cells.StepError, match=message):
        cells.define(step, gates=1, states=2)


OUTSIDE = torch.ones(3)


@pytest.mark.parametrize(
    ("derivative", "message"),
    [
        (lambda g, x: g * x.cumsum(0), "the derivative of the step uses cumsum"),
        (lambda g, x: g * torch.sin(x), "the derivative of the step uses sin"),
        (lambda g, x: g.mul_(x), "the derivative of the step uses copy_"),
        (lambda g, x: g * x**7, "pow.Tensor_Scalar cannot be used here"),
        (lambda g, x: g * ((x > 0).half() * 0.1), "mul.Tensor cannot be used here: it computes"),
        (lambda g, x: g * OUTSIDE, "the step uses a tensor that is not an argument of it"),
        (lambda g, x: g if x.sum() > 0 else x, "the step takes the value of a tensor (item)"),
        (lambda g, x: g if x > 0 else x, "by torch.func: RuntimeError: Boolean value of"),
        (lambda g, x: g * {}["slope"], "cannot be differentiated by torch.func: KeyError: 'slope'"),
        (lambda g, x: g * (1 / (len(x) - 3)), "by torch.func: ZeroDivisionError: division by zero"),
    ],
)
def test_the_line_of_a_derivative_of_the_users_own_is_named(derivative, message: str) -> None:
    class Function(Spike):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return derivative(gradient, *ctx.saved_tensors)

    with pytest.raises(cells.StepError, match=f"{line_of(derivative)}.*{re.escape(message)}"):
        cells.define(spiking(Function), gates=1, states=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_states_keep_their_dtype(dtype: torch.dtype) -> None:
    """Though torch makes float32 of two numbers to choose from."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (torch.where(z[0] > 0, 1.0, 0.25) * z[0], state[1])

    definition = cells.define(step, gates=1, states=2)
    made = definition.advance([torch.ones(3, dtype=dtype)], [torch.ones(3, dtype=dtype)] * 2, [])
    assert [each.dtype for each in made] == [dtype, dtype]


@pytest.mark.parametrize(
    "body",
    [
        lambda z: z / (z.abs() + torch.finfo(z.dtype).eps),
        lambda z: z if z.dtype == torch.float64 else 2 * z,
        lambda z: z / (z.abs() + (1e-4 if z.dtype == torch.float16 else 1e-8)),
        lambda z: z.clamp(-9, 9) if z.dtype == torch.bfloat16 else z,
        lambda z: z / z.numel(),
    ],
    ids=["finfo", "dtype", "float16", "bfloat16", "numel"],
)
def test_steps_that_depend_on_more_than_values(body: Callable[[Tensor], Tensor]) -> None:
    """One functor serves every dtype and shape."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        return body(z[0])

    with pytest.raises(cells.StepError, match="depends on the shape or dtype of its tensors"):
        cells.define(step, gates=1, states=1)


# Random steps -----------------------------------------------------------------------------------

UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.sigmoid,
    torch.tanh,
    F.elu,
    F.softplus,
    F.logsigmoid,
    F.relu,
    lambda x: torch.exp(-x.abs()),
    lambda x: torch.log1p(x * x),
    lambda x: torch.sqrt(1 + x * x),
    lambda x: 0.5 * x + 0.25,
)
BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.add,
    torch.sub,
    torch.maximum,
    torch.minimum,
    lambda x, y: torch.tanh(x) * y,
    lambda x, y: x / (1 + y * y),
    lambda x, y: torch.where(x > y, x, torch.tanh(y)),
    lambda x, y: torch.lerp(x, y, torch.sigmoid(x)),
    lambda x, y: (x > y).to(x.dtype) - (x > 0) * y,
)


@dataclass(frozen=True)
class Program:
    """A random elementwise step: instructions on all values so far, the last ones its states."""

    gates: int
    states: int
    split: bool
    instructions: tuple[tuple[int, int, int], ...]

    def step(self, *arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        values = [value for argument in arguments for value in argument]
        for which, first, second in self.instructions:
            x, y = values[first % len(values)], values[second % len(values)]
            if which < len(UNARY):
                values.append(UNARY[which](x))
            else:
                values.append(BINARY[which - len(UNARY)](x, y))
        return tuple(torch.tanh(value) for value in values[-self.states :])

    def define(self) -> cells.Definition:
        return cells.define(self.step, gates=self.gates, states=self.states, split=self.split)


NUMBER = st.integers(0, 60)


def programs_of(gates: int, states: int) -> st.SearchStrategy[Program]:
    """Of at most so many gates and states."""
    return st.builds(
        Program,
        gates=st.integers(2, gates),
        states=st.integers(1, states),
        split=st.booleans(),
        instructions=st.lists(
            st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), NUMBER, NUMBER),
            min_size=4,
            max_size=14,
        ).map(tuple),
    )


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs=st.lists(programs_of(5, 4), min_size=8, max_size=8))
def test_random_steps(programs: list[Program], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Several to a compilation, which takes longer than all the rest."""
    definitions = [program.define() for program in programs]
    compiled = Compiled.of(definitions, tmp_path_factory.mktemp("random"))
    for index, definition in enumerate(definitions):
        assert_computes(compiled, index, drawn(definition, 50, 1.5, seed=index))
