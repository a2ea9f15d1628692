"""Each cell of ``lltm.cells`` against eager, ``torch.compile``, JAX and torch's own module.

Run by ``nox -s bench -- --cells``, or by itself::

    pytest benchmarks/bench_cells.py --select op=gru,case=64x16x32x128 --benchmark-json FILE

One thread, float32. The LLTM races that of the wheel, too. As in bench_race.py every entrant of a
row is a test, checked against eager before it is timed in rounds with the others.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lltm
from benchmarks import jax_scan, racing, workloads
from benchmarks.bench_race import REPLAY
from benchmarks.competitors import UNROLLED
from benchmarks.not_here import NotHere
from benchmarks.runs import figures
from benchmarks.runs.figures import COMPILE, JAX, MODULES, OTHER, OURS
from benchmarks.workloads import Call
from lltm import cells
from lltm._compile import unavailable_reason
from lltm.cells import _contract, _reference, formulas

SHAPES = ((64, 16, 32, 128), (64, 1, 256, 512), (256, 8, 64, 96))
"""T, B, F, S."""
WORKS = ("inference", "forward+backward")
TOLERANCE = 1e-3
GRADIENT = 0.5
"""Of every hidden state."""

LLTMS = ("lltm.cells", "lltm.LLTMSequence")

Run = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Entrant:
    """Who takes part.

    Attributes:
        result: the hidden states, to be checked.
        call: what is timed.
        compile_seconds: until the first result, beyond a later one; None where nothing compiles.
    """

    result: Run
    call: Call
    compile_seconds: float | None = None


@dataclass(frozen=True)
class Heat:
    """One cell at one shape, doing one work.

    Attributes:
        cell: its definition.
        shape: T, B, F, S.
        work: one of :data:`WORKS`.
        compilers: whether torch.compile takes part.
    """

    cell: cells.Definition
    shape: tuple[int, ...]
    work: str
    compilers: bool = True

    def fields(self) -> dict[str, str]:
        """As a row's; a cell is an op."""
        case = "x".join(map(str, self.shape))
        values = (self.cell.name, case, "float32", "1", self.work)
        return dict(zip(figures.FIELDS, values, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part, whether it can run here or not."""
        of_lltm = ("lltm.LLTMSequence",) if self.cell == formulas.LLTM else ()
        of_torch = (MODULES[self.cell.name],) if self.cell.name in MODULES else ()
        compilers = (COMPILE,) if self.compilers else ()
        return ("eager", "lltm.cells", *of_lltm, *of_torch, *compilers, *JAX)

    def arguments(self) -> _contract.Arguments:
        """Of one layer, as ``nn.LSTM`` draws its parameters."""
        torch.manual_seed(0)
        steps, batch, features, state = self.shape
        cell, bound = self.cell, state**-0.5
        training = self.work != "inference"

        def drawn(*sizes: int) -> Tensor:
            return (2 * bound * torch.rand(*sizes) - bound).requires_grad_(training)

        return _contract.Arguments(
            input=torch.randn(steps, batch, features).requires_grad_(training),
            weights=drawn(cell.gates * state, state + features),
            bias=drawn(cell.pre_activations * state),
            states=torch.ones(cell.states, batch, state),
            scalars=tuple(default for _, default in cell.scalars),
        )

    def entrant(self, name: str, given: _contract.Arguments) -> Entrant:
        """Who takes part by that name.

        Raises:
            NotHere: it cannot run here.
        """
        if name in JAX:
            return self._of_jax(given, JAX[name])
        run = self._run(name, given)
        grad = torch.full((*self.shape[:2], self.shape[3]), GRADIENT)
        call = run if self.work == "inference" else _training_step(run, grad)
        return Entrant(run, call, _compile_seconds(call) if name == COMPILE else None)

    def _of_jax(self, given: _contract.Arguments, unroll: int) -> Entrant:
        jax = jax_scan.started(1)
        scan = jax_scan.Scan(jax, unroll, tuple(given.scalars), self.cell.name)
        tensors = (given.input, given.weights, given.bias, *given.states)
        arrays = [jax.dlpack.from_dlpack(tensor.detach()) for tensor in tensors]
        timed, call = scan.inference, functools.partial(scan.inference, *arrays)
        if self.work != "inference":
            output, *last = scan.inference(*arrays)
            of_last = (jax.numpy.zeros_like(each) for each in last)
            grads = (jax.numpy.full_like(output, GRADIENT), *of_last)
            timed, call = scan.training_step, functools.partial(scan.training_step, grads, *arrays)
        call()
        result = functools.partial(scan.inference, *arrays)
        return Entrant(lambda: (jax_scan.as_tensor(result()[0]),), call, timed.compile_seconds)

    def _run(self, name: str, given: _contract.Arguments) -> Run:
        """What computes the hidden states, of those in torch."""

        def eager() -> tuple[Tensor, ...]:
            return _reference.sequence(self.cell, given)[:1]

        if name == "eager":
            return eager
        if name == COMPILE:
            return self._compiled(given)
        if name == "lltm.LLTMSequence":
            return self._of_module(lltm.LLTMSequence, given)
        if name != "lltm.cells":
            return self._of_torch(getattr(nn, name.removeprefix("nn.")), given)
        if not cells.prepare(self.cell):
            raise NotHere("its kernels cannot be compiled")
        return self._of_module(functools.partial(cells.Sequence, self.cell), given)

    def _compiled(self, given: _contract.Arguments) -> Run:
        if (reason := unavailable_reason()) is not None:
            raise NotHere(reason)
        # Else the graphs of other rows count against the limit of graphs, behind which is eager.
        torch.compiler.reset()

        def part(*tensors: Tensor) -> tuple[Tensor, Tensor]:
            return _reference.sequence(self.cell, _contract.Arguments(*tensors, given.scalars))

        fast = torch.compile(part, dynamic=False, fullgraph=True)
        most = UNROLLED[self.work != "inference"]

        def run() -> tuple[Tensor, ...]:
            outputs, states = [], given.states
            for steps in given.input.split(most):
                output, states = fast(steps, given.weights, given.bias, states)
                outputs.append(output)
            return (torch.cat(outputs) if len(outputs) > 1 else outputs[0],)

        return run

    def _of_module(self, make: Callable[..., nn.Module], given: _contract.Arguments) -> Run:
        module = make(*self.shape[2:])
        del module.weight_l0, module.bias_l0
        module.weight_l0, module.bias_l0 = given.weights, given.bias  # the same leaves for all
        states = tuple(state.unsqueeze(0) for state in given.states)
        return lambda: (module(given.input, states)[0],)

    def _of_torch(self, make: Callable[..., nn.Module], given: _contract.Arguments) -> Run:
        options = {"nonlinearity": "relu"} if self.cell == formulas.RNN_RELU else {}
        state, module = self.shape[3], make(*self.shape[2:], **options)
        hidden, inputs = given.weights[:, :state], given.weights[:, state:]
        bias = given.bias
        assert bias is not None
        halves = bias.chunk(2) if self.cell.split else (bias, torch.zeros_like(bias))
        values = {"hh": (hidden, halves[1]), "ih": (inputs, halves[0])}
        with torch.no_grad():
            for share, (weight, its_bias) in values.items():
                getattr(module, f"weight_{share}_l0").copy_(weight)
                getattr(module, f"bias_{share}_l0").copy_(its_bias)
        module.requires_grad_(self.work != "inference")
        first = tuple(state.unsqueeze(0) for state in given.states)
        return lambda: (module(given.input, first if len(first) > 1 else first[0])[0],)


def _training_step(run: Run, grad: Tensor) -> Call:
    return lambda: run()[0].backward(grad)


def _compile_seconds(call: Call) -> float:
    first, later = (racing.by_clock(time.perf_counter)([call]) for _ in range(2))
    return max(0.0, first - later)


@dataclass(frozen=True)
class Held:
    """A heat that was held.

    Attributes:
        seconds: of every entrant, round by round.
        not_run: why an entrant could not run.
        compile_seconds: of those that compile.
    """

    seconds: Mapping[str, list[float]]
    not_run: Mapping[str, str]
    compile_seconds: Mapping[str, float | None]


# Held once for all the entrants of a row: pytest has them one after the other.
@functools.lru_cache(maxsize=1)
def hold(heat: Heat, seconds: float) -> Held:
    """Check everyone against eager, and time them in rounds."""
    torch.set_num_threads(1)
    given, entrants, not_run = heat.arguments(), {}, {}
    for name in heat.names:
        try:
            entrants[name] = heat.entrant(name, given)
        except NotHere as reason:
            not_run[name] = str(reason)
    exact = entrants["eager"].result()[0].detach()
    for name, entrant in entrants.items():
        miss = float((entrant.result()[0].detach() - exact).abs().max() / exact.abs().max())
        assert miss < TOLERANCE, f"{name} is off by {miss:.1e} of the largest element"
    calls = {name: functools.partial(_repeated, each.call) for name, each in entrants.items()}
    compiling = {name: entrant.compile_seconds for name, entrant in entrants.items()}
    raced = racing.race(calls, seconds, racing.by_clock(time.process_time))
    return Held(raced, not_run, compiling)


def _repeated(call: Call, count: int) -> list[Call]:
    return [call] * count


def heats(compilers: bool = True) -> list[Heat]:
    """Every row, with torch.compile or without."""
    product = itertools.product(formulas.SHIPPED, SHAPES, WORKS, (compilers,))
    return list(itertools.starmap(Heat, product))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    option = metafunc.config.getoption
    every = heats(compilers=not option("--without-compilers"))
    try:
        chosen = workloads.select(every, option("--select"), every)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    parameters = [
        pytest.param(heat, name, id="-".join((*heat.fields().values(), name)))
        for heat in chosen
        for name in heat.names
    ]
    metafunc.parametrize(("heat", "name"), parameters)


@pytest.mark.benchmark(timer=REPLAY)
def test_race(heat: Heat, name: str, benchmark: Any, request: pytest.FixtureRequest) -> None:
    held = hold(heat, float(request.config.getoption("--benchmark-max-time")))
    if name in held.not_run:
        pytest.skip(f"not run: {held.not_run[name]}")
    fields, seconds = heat.fields(), held.seconds[name]
    benchmark.group = " ".join(fields.values())
    benchmark.extra_info.update(
        fields,
        competitor=name,
        contest=id(held),
        kind=OURS if name in LLTMS else OTHER,
        compile_seconds=held.compile_seconds[name],
    )
    REPLAY.load(seconds)
    benchmark.pedantic(lambda: None, rounds=len(seconds))
