"""Who is timed: every way to compute the op that a user of torch has, and ours."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import cases
import torch
from cases import Arguments, Case
from torch import Tensor, nn
from torch.nn import functional as F

import lltm
from benchmarks import jax_scan, onnx_lstm
from benchmarks.workloads import INFERENCE, NEEDS, Foreign, Outputs, Problem, Row, Share
from lltm import _library, reference

OURS, STREAM, OTHER, LSTM = "ours", "stream", "other", "lstm"
"""Kinds. An LSTM computes something else, with four gates; all others compute the LLTM and are
checked against the reference before they are timed. A stream is ours, with its weights packed
before the clock starts."""
SHIPPED_FLAGS = ("-O2", "-g0")
"""What build_support/library.py optimises with."""


@dataclass(frozen=True)
class Competitor:
    """One way to compute a row.

    Attributes:
        name: as in the tables.
        kind: OURS, OTHER or LSTM.
        backend: lltm's name for it, ``None`` where it is no backend of lltm.
        ops: ``cell``, ``sequence`` or both.
        problem: makes its share of a row.
        source: one line on what it is.
        races: whether it is run in a row of its ops; the table in docs/benchmarks.md shows it.
    """

    name: str
    kind: str
    backend: str | None
    ops: tuple[str, ...]
    problem: Callable[[Row], Share]
    source: str
    races: Callable[[Row], bool] = lambda row: True

    def takes_part(self, row: Row) -> bool:
        """Whether the row is one that it races in."""
        return row.case.op in self.ops and self.races(row)


def arguments(row: Row) -> Arguments:
    """The row's tensors; only :data:`NEEDS` ask for gradients, and none in inference."""
    made = row.case.arguments(row.dtype, row.device)
    return made.leaves(NEEDS[row.case.op]) if row.work.grad else made


def problem_of(function: Callable[..., Outputs], row: Row) -> Problem:
    """Of a function with the arguments of the row's op."""
    return asking(function, arguments(row))


def asking(function: Callable[..., Outputs], args: Arguments) -> Problem:
    """The same, asking for the gradients that the arguments ask for."""
    leaves = [tensor for tensor in args.tensors() if tensor.requires_grad]
    return Problem(partial(function, *args), args.tensors(), leaves)


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
    return problem_of(row.case.reference, row)


# Compilers ----------------------------------------------------------------------------------------


@functools.cache
def _scripted(op: str) -> Callable[..., Outputs]:
    with warnings.catch_warnings():
        # torch 2.x calls TorchScript deprecated; people still run it.
        warnings.filterwarnings("ignore", "`torch.jit.script`")
        return torch.jit.script(reference.cell if op == "cell" else premultiplied)


def _torchscript(row: Row) -> Problem:
    return problem_of(_scripted(row.case.op), row)


UNROLLED = {False: 64, True: 16}
"""Steps that torch.compile is given at a time, without gradients and with them. It unrolls them, at
about half a second each, and of 8, 16, 32 and 64 these ran fastest on an AMD Zen 2."""


@functools.lru_cache(maxsize=1)
def _fresh(
    case: Case, dtype: torch.dtype, device: str, tf32: bool, threads: int, grad: bool
) -> dict[str, Callable[..., Outputs]]:
    """What has been compiled for one problem, by mode; the arguments are the key."""
    # Else the graphs of other problems count against the limit of graphs, behind which is eager.
    torch.compiler.reset()
    return {}


def compiled(row: Row, mode: str) -> Callable[..., Outputs]:
    """Eager or premultiplied, compiled for one problem and nothing else."""
    made = _fresh(row.case, row.dtype, row.device, row.tf32, row.threads, row.work.grad)
    if mode not in made:
        function = reference.cell if row.case.steps is None else premultiplied
        fast = torch.compile(function, dynamic=False, fullgraph=True, mode=mode)
        most = UNROLLED[row.work.grad]
        made[mode] = fast if (row.case.steps or 0) <= most else _in_parts(fast, most)
    return made[mode]


def _in_parts(fast: Callable[..., Outputs], steps: int) -> Callable[..., Outputs]:
    def function(
        input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs = []
        for part in input.split(steps):
            output, h, c = fast(part, weights, bias, h, c, alpha)
            outputs.append(output)
        return torch.cat(outputs), h, c

    return function


def _compile(row: Row) -> Problem:
    return problem_of(compiled(row, "default"), row)


# torch's LSTM -------------------------------------------------------------------------------------


def _lstm(row: Row) -> Problem:
    args = arguments(row)
    case = row.case
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = nn.LSTMCell if case.steps is None else nn.LSTM
        module = kind(case.features, case.state, dtype=row.dtype, device=row.device)
    module.requires_grad_(row.work.grad)
    # The same gradients as of the others; the LSTM has two biases, one of them is enough.
    frozen = [parameter for name, parameter in module.named_parameters() if "bias_hh" in name]
    for parameter in frozen:
        parameter.requires_grad_(False)
        nn.init.zeros_(parameter)
    leaves = [tensor for tensor in (args.input, args.h, args.c) if tensor.requires_grad]
    leaves += [parameter for parameter in module.parameters() if parameter.requires_grad]
    known = [args.input, args.h, args.c, *module.parameters()]
    if case.steps is None:
        return Problem(lambda: module(args.input, (args.h, args.c)), known, leaves)
    h0, c0 = args.h.unsqueeze(0), args.c.unsqueeze(0)

    def run() -> Outputs:
        output, (h_n, c_n) = module(args.input, (h0, c0))
        return output, h_n, c_n

    return Problem(run, known, leaves)


# Other frameworks ---------------------------------------------------------------------------------


def _scanned(unroll: int) -> Callable[[Row], Share]:
    return lambda row: jax_scan.problem(row, arguments(row), unroll)


def _onnx(row: Row) -> Share:
    return onnx_lstm.problem(row, arguments(row))


# lltm ---------------------------------------------------------------------------------------------


def _stream(row: Row) -> Share:
    """One step after another, the states kept from call to call."""
    args = arguments(row)
    stream = lltm.LLTMStream([(args.weights, args.bias)], row.case.batch, args.alpha)
    initial = args.h.unsqueeze(0), args.c.unsqueeze(0)

    def tensors() -> list[Tensor]:
        stream.reset(initial)
        stream.step(args.input)
        return [state[0] for state in stream.state]

    return Foreign(lambda: stream.step(args.input), tensors)


def by_lltm(backend: str | None) -> Callable[[Row], Problem]:
    """``None`` is what a user gets who names no backend."""
    return lambda row: problem_of(partial(row.case.function, backend=backend), row)


BOTH = ("cell", "sequence")
EAGER = Competitor("eager", OTHER, "reference", BOTH, _eager, "the reference: plain PyTorch")
PREMULTIPLIED = Competitor(
    "premultiplied",
    OTHER,
    None,
    ("sequence",),
    lambda row: problem_of(premultiplied, row),
    "eager, with one product for the inputs of all steps",
)
OTHERS = (
    EAGER,
    PREMULTIPLIED,
    Competitor(
        "torchscript", OTHER, None, BOTH, _torchscript, "torch.jit.script of eager or premultiplied"
    ),
    Competitor(
        "compile", OTHER, None, BOTH, _compile, "torch.compile of eager or premultiplied, unrolled"
    ),
    Competitor("lstm", LSTM, None, BOTH, _lstm, "nn.LSTMCell or nn.LSTM"),
)
FRAMEWORKS = (
    *(
        Competitor(
            f"jax {unroll}",
            OTHER,
            None,
            ("sequence",),
            _scanned(unroll),
            f"JAX's lax.scan under jit, unrolled by {unroll}",
        )
        for unroll in (1, 4)
    ),
    Competitor(
        "onnxruntime",
        OTHER,
        None,
        BOTH,
        _onnx,
        "ONNX Runtime's LSTM kernel, its forget gate saturated",
        # Its LSTM kernel knows no other type, and no gradient.
        races=lambda row: row.work == INFERENCE and row.dtype == torch.float32,
    ),
)
STREAMED = Competitor(
    "stream",
    STREAM,
    None,
    ("cell",),
    _stream,
    "lltm.LLTMStream, its weights packed before",
    races=lambda row: row.work == INFERENCE,
)
ATEN = Competitor("aten", OTHER, "aten", BOTH, by_lltm("aten"), "the tutorial's C++, of ATen ops")
NATIVE = Competitor("native", OURS, "jit", BOTH, by_lltm("jit"), "lltm's kernels, native binding")


def installed() -> Competitor:
    """The binding this lltm was installed with."""
    binding = _library.build().binding
    return Competitor(
        binding, OURS, "fused", BOTH, by_lltm(None), f"lltm's kernels, {binding} binding"
    )


def load_native() -> None:
    """Have the native binding, and ATEN with it, beside the stable one, in this very process.

    With the flags of the native wheel, so that the bindings differ in nothing but the binding.
    """
    if _library.build().binding == "stable":
        lltm.jit.load(optimise=SHIPPED_FLAGS)


def everyone() -> tuple[Competitor, ...]:
    """All who can run in this process, ours last."""
    found = {backend.name for backend in lltm.backends.available()}
    composed = (ATEN,) if ATEN.backend in found else ()
    native = (NATIVE,) if NATIVE.backend in found else ()
    return (*OTHERS, *FRAMEWORKS, *composed, installed(), *native, STREAMED)


SLOW = ("compile",)
"""Takes most of a minute before its first result on a sequence."""
COMPILERS = (*SLOW, "max-autotune")


def taking_part(
    everyone: Iterable[Competitor], row: Row, scope: str, *, compilers: bool
) -> tuple[Competitor, ...]:
    """Who races in a row of a scope, with torch.compile or without."""
    left_out: tuple[str, ...] = () if compilers else COMPILERS
    if row.case.op == "sequence" and scope != "cuda":
        left_out += () if scope == "full" and row.dtype == torch.float32 else SLOW
    return tuple(each for each in everyone if each.takes_part(row) and each.name not in left_out)


ROUNDING = 4.0
"""How many times eager's own error a result may have where that error passes the table."""


@functools.lru_cache(maxsize=1)
def _yardstick(row: Row) -> tuple[list[Tensor], list[float]]:
    """The row's results in float64, from the same numbers, and eager's error in each."""
    args = arguments(row)
    leaves = args.map(lambda tensor: tensor.detach().double().requires_grad_(tensor.requires_grad))
    exact = asking(row.case.reference, leaves).results(grad=row.work.grad)
    eager = _eager(row).results(grad=row.work.grad)
    errors = [_error(rounded, truth) for rounded, truth in zip(eager, exact, strict=True)]
    return exact, errors


def _error(result: Tensor, exact: Tensor) -> float:
    """Root mean square, which one wrong element raises, but not the element that is chaotic: at
    some step of a long sequence a cell state near zero, and all that follows, hangs on rounding."""
    return float((result.detach().double() - exact.detach()).square().mean().sqrt())


def check(competitor: Competitor, problem: Share, row: Row) -> None:
    """Compare outputs, and gradients where the row has any, with the reference in float64.

    The tolerance table holds. It is made for short sequences: a long one carries a rounding error
    on from step to step, eager's too, and where eager itself is further off than the table
    allows, so may a result be, up to ROUNDING times as far.

    Raises:
        AssertionError: a result is further off, or, for an LSTM, not finite.
    """
    results = problem.results(grad=row.work.grad)
    if competitor.kind == LSTM:
        assert all(bool(torch.isfinite(result).all()) for result in results)
        return
    for result, exact, own in zip(results, *_yardstick(row), strict=True):
        assert result.dtype == row.dtype
        if not _error(result, exact) <= ROUNDING * own:
            cases.assert_close(result, exact.to(row.dtype), f"{row.name} by {competitor.name}")
