"""What a cell is tried with, and the results of its kernels and of the reference for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lltm.cells import _reference
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._run import run


@dataclass(frozen=True)
class Problem:
    """What a cell is tried with.

    Attributes:
        cell: its definition.
        steps: T.
        batch: B.
        features: F.
        state: S.
        dtype: of every tensor.
        device: of every tensor.
        seed: other values for another one.
        bias: whether there is one.
    """

    cell: Definition
    steps: int = 9
    batch: int = 5
    features: int = 7
    state: int = 20
    dtype: torch.dtype = torch.float64
    device: str = "cpu"
    seed: int = 0
    bias: bool = True

    def arguments(self, reset: bool = True, start: bool = True) -> Arguments:
        """Values of the dtype, the same for a seed; states are positive, as a normaliser is.

        Args:
            reset: with rows that start again, the first one at the last step among them.
            start: from states of their own, and not from zeros.
        """
        generator = torch.Generator("cpu").manual_seed(self.seed)
        cell, state = self.cell, -(-self.state // self.cell.heads) * self.cell.heads

        def drawn(*sizes: int) -> Tensor:
            values = torch.rand(*sizes, generator=generator, dtype=torch.float64, device="cpu")
            return values.to(self.device, self.dtype)

        def episodes() -> Tensor:
            begins = drawn(self.steps, self.batch) < 0.3
            begins[-1:, :1] = True  # of so few steps as some checks have, none might be drawn
            return begins

        width = state // cell.heads + self.features
        states = (cell.states, self.batch, state)
        return Arguments(
            input=2 * drawn(self.steps, self.batch, self.features) - 1,
            weights=(2 * drawn(cell.gates * state, width) - 1) / width**0.5,
            bias=drawn(cell.pre_activations * state) - 0.5 if self.bias else None,
            states=0.1 + drawn(*states),
            scalars=tuple(default for _, default in cell.scalars),
            reset=episodes() if reset else None,
            reset_state=0.1 + drawn(*states) if reset and start else None,
        )


Function = Callable[[Arguments], tuple[Tensor, Tensor]]
"""The two outputs of a cell."""


def results(
    function: Function, arguments: Arguments, weights: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """Outputs, then the gradients of every argument, for weights that differ by element.

    Args:
        function: what is called.
        arguments: with these.
        weights: of the outputs, in any dtype.
    """
    tensors = [each.detach().requires_grad_() for each in present(arguments)]
    outputs = function(with_tensors(arguments, tensors))
    if weights is None:
        weights = [
            torch.linspace(-1, 1, each.numel(), device="cpu").view_as(each) for each in outputs
        ]
    seeds = [weight.to(each) for weight, each in zip(weights, outputs, strict=True)]
    gradients = torch.autograd.grad(outputs, tensors, seeds, materialize_grads=True)
    return [each.detach() for each in (*outputs, *gradients)]


def present(arguments: Arguments) -> list[Tensor]:
    """The tensors there are, of those that can have a gradient."""
    return [each for each in arguments.tensors() if each is not None]


def with_tensors(arguments: Arguments, tensors: Sequence[Tensor]) -> Arguments:
    """With other tensors in the place of those that are there."""
    following = iter(tensors)
    input, weights, bias, states, start = (
        None if each is None else next(following) for each in arguments.tensors()
    )
    assert input is not None
    assert weights is not None
    assert states is not None
    scalars, reset = arguments.scalars, arguments.reset
    return Arguments(input, weights, bias, states, scalars, reset, start)


def of_kernels(cell: Definition) -> Function:
    return lambda arguments: run(cell, arguments)


def of_reference(cell: Definition) -> Function:
    return lambda arguments: _reference.sequence(cell, arguments)
