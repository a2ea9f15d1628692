"""Who is timed: every way to compute the op that a user of torch has, and ours.

``exact`` competitors compute the LLTM and are checked against the reference before they are timed;
the others are torch's LSTM, which does a third more work (four gates).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import cases
import torch
from benchmarks.workloads import NEEDS, Outputs, Problem, Row
from cases import Arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name the field gives it

import lltm
from lltm import _library, reference

LSTM_GATES = 4
LSTM_SHARE = 3 / LSTM_GATES
"""The LLTM has three gates: three quarters of an LSTM's time is what the same road would cost."""


@dataclass(frozen=True)
class Competitor:
    """One way to compute a row.

    Attributes:
        name: as in the tables.
        ours: whether it is one of lltm's fused kernels.
        exact: whether it computes the LLTM.
        ops: ``cell``, ``sequence`` or both.
        problem: makes its share of a row.
        source: one line on what it is.
    """

    name: str
    ours: bool
    exact: bool
    ops: tuple[str, ...]
    problem: Callable[[Row], Problem]
    source: str


def arguments(row: Row) -> Arguments:
    """The row's tensors; only :data:`NEEDS` ask for gradients, and none in inference."""
    made = row.case.arguments(row.dtype)
    return made.leaves(NEEDS[row.case.op]) if row.work.grad else made


def _problem(function: Callable[..., Outputs], row: Row) -> Problem:
    args = arguments(row)
    return Problem(partial(function, *args), [t for t in args.tensors() if t.requires_grad])


# In Python ----------------------------------------------------------------------------------------


def step(z: Tensor, weights: Tensor, h: Tensor, c: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """One step of the premultiplied loop.

    Args:
        z: the input's share of the pre-activations, bias included, ``[B, 3S]``.
        weights: those of the hidden state, ``[3S, S]``.
        h: hidden state ``[B, S]``.
        c: cell state ``[B, S]``.
        alpha: the ELU's scale.
    """
    z_input, z_output, z_candidate = torch.addmm(z, h, weights.t()).chunk(3, 1)
    c = c + F.elu(z_candidate, alpha) * torch.sigmoid(z_input)
    return torch.tanh(c) * torch.sigmoid(z_output), c


def premultiplied(
    input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The sequence with one product for the inputs of all steps, as a careful user writes it."""
    state = h.size(1)
    state_weights = weights[:, :state]
    outputs = []
    for z in F.linear(input, weights[:, state:], bias).unbind(0):
        h, c = step(z, state_weights, h, c, alpha)
        outputs.append(h)
    return torch.stack(outputs), h, c


def _eager(row: Row) -> Problem:
    return _problem(row.case.reference, row)


# Compilers ----------------------------------------------------------------------------------------


@functools.cache
def _scripted(op: str) -> Callable[..., Outputs]:
    with warnings.catch_warnings():
        # torch 2.x calls TorchScript deprecated; people still run it.
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(reference.cell if op == "cell" else premultiplied)


def _torchscript(row: Row) -> Problem:
    return _problem(_scripted(row.case.op), row)


def _compiled(row: Row) -> Problem:
    if row.case.op == "cell":
        return _problem(torch.compile(reference.cell, dynamic=False), row)
    fast_step = torch.compile(step, dynamic=False)

    def sequence(
        input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
    ) -> Outputs:
        state = h.size(1)
        state_weights = weights[:, :state]
        outputs = []
        for z in F.linear(input, weights[:, state:], bias).unbind(0):
            h, c = fast_step(z, state_weights, h, c, alpha)
            outputs.append(h)
        return torch.stack(outputs), h, c

    return _problem(sequence, row)


def _compiled_whole(row: Row) -> Problem:
    return _problem(torch.compile(premultiplied, dynamic=False), row)


# torch's LSTM -------------------------------------------------------------------------------------


def _lstm(row: Row) -> Problem:
    args = arguments(row)
    case = row.case
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = nn.LSTMCell if case.steps is None else nn.LSTM
        module = kind(case.features, case.state, dtype=row.dtype)
    module.requires_grad_(row.work.grad)
    # The same gradients as of the others; the LSTM has two biases, one of them is enough.
    frozen = [parameter for name, parameter in module.named_parameters() if "bias_hh" in name]
    for parameter in frozen:
        parameter.requires_grad_(False)
        nn.init.zeros_(parameter)
    leaves = [tensor for tensor in (args.input, args.h, args.c) if tensor.requires_grad]
    leaves += [parameter for parameter in module.parameters() if parameter.requires_grad]
    if case.steps is None:
        return Problem(lambda: module(args.input, (args.h, args.c)), leaves)
    h0, c0 = args.h.unsqueeze(0), args.c.unsqueeze(0)

    def run() -> Outputs:
        output, (h_n, c_n) = module(args.input, (h0, c0))
        return output, h_n, c_n

    return Problem(run, leaves)


# lltm ---------------------------------------------------------------------------------------------


def _lltm(backend: str | None) -> Callable[[Row], Problem]:
    """``None`` is what a user gets who names no backend."""
    return lambda row: _problem(partial(row.case.function, backend=backend), row)


BOTH = ("cell", "sequence")
OTHERS = (
    Competitor("eager", False, True, BOTH, _eager, "the reference: plain PyTorch"),
    Competitor(
        "premultiplied",
        False,
        True,
        ("sequence",),
        lambda row: _problem(premultiplied, row),
        "eager, with one product for the inputs of all steps",
    ),
    Competitor(
        "torchscript", False, True, BOTH, _torchscript, "torch.jit.script of eager or premultiplied"
    ),
    Competitor(
        "compile", False, True, BOTH, _compiled, "torch.compile of the cell, or of each step"
    ),
    Competitor(
        "compile whole",
        False,
        True,
        ("sequence",),
        _compiled_whole,
        "torch.compile of the premultiplied loop, unrolled",
    ),
    Competitor("lstm", False, False, BOTH, _lstm, "nn.LSTMCell or nn.LSTM"),
)


def aten() -> Competitor:
    """The tutorial's C++ design; carried by the native binding only."""
    return Competitor("aten", False, True, BOTH, _lltm("aten"), "the tutorial's C++, ATen ops")


def ours() -> Sequence[Competitor]:
    """Each binding loaded in this process."""
    source = "lltm's fused kernels, {} binding"
    installed = _library.build().binding
    found = [Competitor(installed, True, True, BOTH, _lltm(None), source.format(installed))]
    if "jit" in _library.namespaces():
        found.append(Competitor("native", True, True, BOTH, _lltm("jit"), source.format("native")))
    return found


def all_competitors() -> tuple[Competitor, ...]:
    """Everyone who can run here, ours last."""
    names = [backend.name for backend in lltm.backends.available()]
    composed = [aten()] if "aten" in names else []
    return (*OTHERS, *composed, *ours())


def check(competitor: Competitor, problem: Problem, row: Row) -> None:
    """Compare outputs, and gradients where the row has any, with the reference.

    Raises:
        AssertionError: they differ by more than the tolerance table allows, or, for an LSTM, are
            not finite.
    """
    outputs = problem.call()
    results = [*outputs, *(problem.gradients() if row.work.grad else ())]
    if not competitor.exact:
        assert all(bool(torch.isfinite(result).all()) for result in results)
        return
    expected_problem = _eager(row)
    expected = [
        *expected_problem.call(),
        *(expected_problem.gradients() if row.work.grad else ()),
    ]
    for actual, wanted in zip(results, expected, strict=True):
        cases.assert_close(actual, wanted, f"{row.name} by {competitor.name}")
