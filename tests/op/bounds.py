"""How wrong each result may be on any processor: rounding errors, carried from the inputs on.

A number is carried as its value in float64 and a bound of the error of what the kernels compute for
it. A sum's own error is ``roundings(terms)`` halves of an ulp of the sum of its terms' magnitudes,
an elementary function's is ``MATHS`` ulp, and the errors of what goes in are carried through all
that is done to them. The sizes enter through the terms of the sums alone; ``TERMS``
has them. What is here holds in every instruction set: the kernels' blocks differ, their longest
chain of additions does not exceed ``roundings``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from cases import Arguments, Case
from torch import Tensor

MATHS = 2.0
"""Ulp of sigmoid, tanh, elu and elu'."""
NEARER = {"tanh": 1.1, "sigmoid": 0.9}
"""Ulp of those that are nearer by themselves."""

BLOCK = 32
"""Terms of a sum that are added in a chain, at most."""

SHORTEST_BLOCK = 16
"""At least, so that there are not more blocks than one for each so many terms."""

TERMS: dict[str, tuple[str, Callable[[Case], int]]] = {
    "pre-activations": ("S + F", lambda case: case.state + case.features),
    "gradients of input and hidden state": ("3 S", lambda case: 3 * case.state),
    "gradients of weights and bias": ("T B", lambda case: (case.steps or 1) * case.batch),
}
"""The terms of each sum, in words and as a number; a cell has T = 1."""


def roundings(terms: int, dtype: torch.dtype = torch.float32) -> int:
    """Roundings that a term of a sum goes through, at most.

    A chain within its block, a chain of blocks, then the lanes of a vector and what is added last.
    The tile instructions of bfloat16 add in one chain; in float, which is far finer.
    """
    if dtype.itemsize == 2:
        return terms + 8
    return min(terms, BLOCK) + math.ceil(terms / SHORTEST_BLOCK) + 8


def table(every: Sequence[Case]) -> str:
    """As docs/accuracy.md has it: the bound of each sum in ulp of its terms' magnitudes."""
    heads = ["case", *(f"{result} ({words})" for result, (words, _) in TERMS.items())]
    lines = [heads, ["---", *["---:"] * len(TERMS)]]
    for case in every:
        bound = [f"{roundings(count(case)) / 2:g}" for _, count in TERMS.values()]
        lines.append([case.name, *bound])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@dataclass(frozen=True)
class Bounded:
    """Numbers, and how far what is computed for them may be off.

    Attributes:
        value: in float64.
        error: at most.
        dtype: what they are stored in; 16-bit types are computed in float32.
    """

    value: Tensor
    error: Tensor
    dtype: torch.dtype

    @property
    def unit(self) -> float:
        """Half an ulp of 1 in the type that is computed in; twice that for float64, because the
        value here is as far from the exact one."""
        if self.dtype == torch.float64:
            return torch.finfo(torch.float64).eps
        return torch.finfo(torch.float32).eps / 2

    def _rounded(self, value: Tensor, error: Tensor, units: float = 1.0) -> Bounded:
        info = torch.finfo(torch.float32 if self.dtype.itemsize == 2 else self.dtype)
        rounding = units * (self.unit * (value.abs() + error) + info.tiny * info.eps)
        return Bounded(value, error + rounding, self.dtype)

    def stored(self) -> Bounded:
        """As it is in memory."""
        if self.dtype.itemsize != 2:
            return self
        info = torch.finfo(self.dtype)
        rounding = info.eps / 2 * (self.value.abs() + self.error) + info.tiny * info.eps
        return Bounded(self.value, self.error + rounding, self.dtype)

    def __add__(self, other: Bounded) -> Bounded:
        return self._rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Bounded) -> Bounded:
        return self._rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Bounded) -> Bounded:
        error = (
            self.value.abs() * other.error
            + self.error * other.value.abs()
            + self.error * other.error
        )
        return self._rounded(self.value * other.value, error)

    def __matmul__(self, other: Bounded) -> Bounded:
        left, right = self.value.abs(), other.value.abs()
        carried = left @ other.error + self.error @ (right + other.error)
        terms = (left + self.error) @ (right + other.error)
        own = roundings(self.value.shape[-1], self.dtype) * self.unit * terms
        return Bounded(self.value @ other.value, carried + own, self.dtype)

    def part(self, index: object) -> Bounded:
        """Some of them."""
        return Bounded(self.value[index], self.error[index], self.dtype)

    @property
    def mT(self) -> Bounded:  # noqa: N802 - as torch has it
        """Transposed."""
        return Bounded(self.value.mT, self.error.mT, self.dtype)

    def through(self, function: Callable[[Tensor], Tensor], jump: float = 0.0) -> Bounded:
        """A function that is monotone on both sides of 0, where it may jump by so much."""
        value = function(self.value)
        ends = [function(self.value - self.error), function(self.value + self.error)]
        error = torch.maximum(*[(end - value).abs() for end in ends])
        error = error + jump * (self.value.abs() <= self.error)
        return self._rounded(value, error, 2 * MATHS)


def _exact(tensor: Tensor) -> Bounded:
    value = tensor.detach().double()
    return Bounded(value, torch.zeros_like(value), tensor.dtype)


def _elu(alpha: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.where(x > 0, x, alpha * torch.expm1(x.clamp_max(0)))


def _elu_derivative(alpha: float) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.where(x > 0, 1.0, alpha * torch.exp(x.clamp_max(0)))


@dataclass(frozen=True)
class _Step:
    """What a step saved for backward, as it is stored."""

    x: Bounded
    input_gate: Bounded
    output_gate: Bounded
    candidate: Bounded
    cell: Bounded


def forward(case: Case, arguments: Arguments) -> tuple[list[Bounded], list[_Step]]:
    """The outputs as the public function returns them, and what backward needs."""
    steps = arguments.input if case.steps is not None else arguments.input.unsqueeze(0)
    weights, h, c = map(_exact, (arguments.weights, arguments.h, arguments.c))
    state = c.value.shape[1]
    alpha = float(torch.tensor(arguments.alpha))
    saved: list[_Step] = []
    outputs: list[Bounded] = []
    for step in steps:
        inputs = _exact(step)
        x = Bounded(
            torch.cat([h.value, inputs.value], 1), torch.cat([h.error, inputs.error], 1), h.dtype
        )
        z = x @ weights.mT
        if arguments.bias is not None:
            z = z + _exact(arguments.bias.reshape(1, -1))
        z_input, z_output, z_candidate = (
            z.part((slice(None), slice(gate * state, (gate + 1) * state))) for gate in range(3)
        )
        input_gate, output_gate = z_input.through(torch.sigmoid), z_output.through(torch.sigmoid)
        c = (c + z_candidate.through(_elu(alpha)) * input_gate).stored()
        h = (c.through(torch.tanh) * output_gate).stored()
        saved.append(_Step(x, input_gate.stored(), output_gate.stored(), z_candidate.stored(), c))
        outputs.append(h)
    if case.steps is None:
        return [h, c], saved
    stacked = Bounded(
        torch.stack([each.value for each in outputs]),
        torch.stack([each.error for each in outputs]),
        h.dtype,
    )
    return [stacked, h, c], saved


def backward(
    case: Case, arguments: Arguments, saved: list[_Step], seeds: tuple[Tensor, ...]
) -> dict[str, Bounded]:
    """The gradient of each argument, for cotangents of the outputs."""
    weights = _exact(arguments.weights)
    state, steps = arguments.c.shape[1], len(saved)
    alpha = float(torch.tensor(arguments.alpha))
    grads = [_exact(seed) for seed in seeds]
    d_h, d_c = grads[-2], grads[-1]
    one = _exact(torch.ones((), dtype=arguments.c.dtype))
    cells = [_exact(arguments.c), *(step.cell for step in saved)]
    d_zs: list[Bounded] = []
    for t in reversed(range(steps)):
        step = saved[t]
        if case.steps is not None:
            d_h = d_h + grads[0].part(t)
        tanh = cells[t + 1].through(torch.tanh)
        d_c = d_c + d_h * step.output_gate * (one - tanh * tanh)
        elu = step.candidate.through(_elu(alpha))
        slope = step.candidate.through(_elu_derivative(alpha), jump=abs(1 - alpha))
        d_z = [
            d_c * elu * (step.input_gate * (one - step.input_gate)),
            d_h * tanh * (step.output_gate * (one - step.output_gate)),
            d_c * step.input_gate * slope,
        ]
        d_zs.insert(0, _cat(d_z, 1).stored())
        d_h = d_zs[0] @ weights.part((slice(None), slice(0, state)))
    every_d_z = _cat(d_zs, 0)
    inputs = every_d_z @ weights.part((slice(None), slice(state, None)))
    ones = _exact(torch.ones(1, len(every_d_z.value), dtype=arguments.c.dtype))
    return {
        "input": inputs.stored(),
        "weights": (every_d_z.mT @ _cat([step.x for step in saved], 0)).stored(),
        "bias": (ones @ every_d_z).stored(),
        "h": d_h.stored(),
        "c": d_c.stored(),
    }


def _cat(parts: list[Bounded], dim: int) -> Bounded:
    return Bounded(
        torch.cat([part.value for part in parts], dim),
        torch.cat([part.error for part in parts], dim),
        parts[0].dtype,
    )
