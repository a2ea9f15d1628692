"""Each cell of ``lltm.cells`` against eager, ``torch.compile``, JAX and torch's own module.

Run by ``nox -s bench -- --cells``, or by itself::

    pytest benchmarks/bench_cells.py --select op=gru,case=64x16x32x128 --benchmark-json FILE

One thread, float32. The LLTM races that of the wheel, too. As in bench_race.py every entrant of a
row is a test, checked against eager before it is timed in rounds with the others. ``torch.compile``
unrolls the steps, which takes minutes, so it takes part up to 64 of them where ``--with-compile``
says so.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lltm
from benchmarks import jax_scan, racing
from benchmarks.bench_race import REPLAY
from benchmarks.not_here import NotHere
from benchmarks.runs import figures
from benchmarks.workloads import Call
from lltm import cells
from lltm.cells import _contract, _reference, formulas

SHAPES = ((64, 16, 32, 128), (64, 1, 256, 512), (256, 8, 64, 96))
"""T, B, F, S."""
MODULES: dict[str, Callable[..., nn.Module]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": functools.partial(nn.RNN, nonlinearity="relu"),
}
"""Torch's, of the cells that it has."""
WORKS = ("inference", "forward+backward")
LONGEST_COMPILED = 64
TOLERANCE = 1e-3
GRADIENT = 0.5
"""Of every hidden state."""

UNROLLED = (1, 4)
"""Steps of a turn of JAX's loop."""

OURS = ("lltm.cells", "lltm.LLTMSequence")

Run = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Entrant:
    """Who takes part.

    Attributes:
        result: the hidden states, to be checked.
        call: what is timed.
    """

    result: Run
    call: Call


@dataclass(frozen=True)
class Heat:
    """One cell at one shape, doing one work.

    Attributes:
        cell: its definition.
        shape: T, B, F, S.
        work: one of :data:`WORKS`.
        compile: whether ``torch.compile`` takes part.
    """

    cell: cells.Definition
    shape: tuple[int, ...]
    work: str
    compile: bool = False

    @property
    def fields(self) -> dict[str, str]:
        """As a row's; a cell is an op."""
        case = "x".join(map(str, self.shape))
        values = (self.cell.name, case, "float32", "1", self.work)
        return dict(zip(figures.FIELDS, values, strict=True))

    @property
    def names(self) -> Iterator[str]:
        """Who takes part, whether installed or not."""
        yield "eager"
        yield "lltm.cells"
        if self.cell == formulas.LLTM:
            yield "lltm.LLTMSequence"
        if self.cell.name in MODULES:
            yield _module_name(self.cell)
        if self.compile and self.shape[0] <= LONGEST_COMPILED:
            yield "compile"
        yield from (f"jax {unroll}" for unroll in UNROLLED)

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

    def entrants(self) -> dict[str, Entrant]:
        """By name; without those that cannot run here."""
        given = self.arguments()
        runs = self._runs(given)
        inference = self.work == "inference"
        found = {
            name: Entrant(run, run if inference else _training_step(run))
            for name, run in runs.items()
        }
        for unroll in UNROLLED:
            try:
                found[f"jax {unroll}"] = self._of_jax(given, unroll)
            except NotHere as reason:
                print(f"\nnot run: jax {unroll}: {reason}")
        return found

    def _of_jax(self, given: _contract.Arguments, unroll: int) -> Entrant:
        jax = jax_scan.started(1)
        scan = jax_scan.Scan(jax, unroll, tuple(given.scalars), self.cell.name)
        tensors = (given.input, given.weights, given.bias, *given.states)
        arrays = [jax.dlpack.from_dlpack(tensor.detach()) for tensor in tensors]
        call = functools.partial(scan.inference, *arrays)
        if self.work != "inference":
            output, *last = scan.inference(*arrays)
            of_last = (jax.numpy.zeros_like(each) for each in last)
            grads = (jax.numpy.full_like(output, GRADIENT), *of_last)
            call = functools.partial(scan.training_step, grads, *arrays)
        call()
        return Entrant(lambda: (jax_scan.as_tensor(scan.inference(*arrays)[0]),), call)

    def _runs(self, given: _contract.Arguments) -> dict[str, Run]:
        """Torch's entrants: what computes the hidden states."""
        found: dict[str, Run] = {}
        if cells.prepare(self.cell):
            sequence: Any = functools.partial(cells.Sequence, self.cell)
            found["lltm.cells"] = self._of_module(sequence, given)
        if self.cell == formulas.LLTM:
            found["lltm.LLTMSequence"] = self._of_module(lltm.LLTMSequence, given)
        found["eager"] = lambda: (_reference.sequence(self.cell, given)[0],)
        if self.compile and self.shape[0] <= LONGEST_COMPILED:
            compiled: Any = torch.compile(lambda: _reference.sequence(self.cell, given))
            found["compile"] = lambda: (compiled()[0],)
        if self.cell.name in MODULES:
            found[_module_name(self.cell)] = self._of_torch(given)
        return found

    def _of_module(self, make: Callable[..., nn.Module], given: _contract.Arguments) -> Run:
        module = make(*self.shape[2:])
        del module.weight_l0, module.bias_l0
        module.weight_l0, module.bias_l0 = given.weights, given.bias  # the same leaves for all
        states = tuple(state.unsqueeze(0) for state in given.states)
        return lambda: (module(given.input, states)[0],)

    def _of_torch(self, given: _contract.Arguments) -> Run:
        state, module = self.shape[3], MODULES[self.cell.name](*self.shape[2:])
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


def _training_step(run: Run) -> Call:
    grad = torch.full_like(run()[0], GRADIENT)
    return lambda: run()[0].backward(grad)


def _module_name(cell: cells.Definition) -> str:
    return f"nn.{cell.name.split('_')[0].upper()}"


# Held once for all the entrants of a row: pytest has them one after the other.
@functools.lru_cache(maxsize=1)
def race(heat: Heat, seconds: float) -> Mapping[str, list[float]]:
    """Seconds of every entrant, round by round."""
    torch.set_num_threads(1)
    entrants = heat.entrants()
    exact = entrants["eager"].result()[0].detach()
    for name, entrant in entrants.items():
        miss = float((entrant.result()[0].detach() - exact).abs().max() / exact.abs().max())
        assert miss < TOLERANCE, f"{name} is off by {miss:.1e} of the largest element"
    return racing.race(
        {name: functools.partial(_repeated, each.call) for name, each in entrants.items()},
        seconds,
        racing.by_clock(time.process_time),
    )


def _repeated(call: Call, count: int) -> list[Call]:
    return [call] * count


def heats(config: pytest.Config) -> Iterator[Heat]:
    """The rows that ``--select`` leaves."""
    chosen = config.getoption("--select")
    wanted = dict(each.partition("=")[::2] for each in chosen.split(",")) if chosen else {}
    for each in itertools.product(formulas.SHIPPED, SHAPES, WORKS):
        heat = Heat(*each, compile=bool(config.getoption("--with-compile")))
        if all(heat.fields.get(key) == value for key, value in wanted.items()):
            yield heat


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parameters = [
        pytest.param(heat, name, id="-".join((*heat.fields.values(), name)))
        for heat in heats(metafunc.config)
        for name in heat.names
    ]
    metafunc.parametrize(("heat", "name"), parameters)


@pytest.mark.benchmark(timer=REPLAY)
def test_race(heat: Heat, name: str, benchmark: Any, request: pytest.FixtureRequest) -> None:
    held = race(heat, float(request.config.getoption("--benchmark-max-time")))
    if name not in held:
        pytest.skip(f"not run: {name} cannot run here; its reason is above")
    benchmark.group = " ".join(heat.fields.values())
    benchmark.extra_info.update(
        heat.fields, competitor=name, contest=id(held), kind="ours" if name in OURS else "other"
    )
    REPLAY.load(held[name])
    benchmark.pedantic(lambda: None, rounds=len(held[name]))
