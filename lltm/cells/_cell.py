"""Cell: one step of any cell as a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lltm import contract
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._module_checks import (
    check_sizes,
    check_states,
    describe_sizes,
    parameters_of,
    reset_parameters,
)
from lltm.cells._run import run, run_step
from lltm.cells._step import States, StepArguments


class Cell(nn.Module):
    """One step of a cell.

    Args:
        cell: what :func:`lltm.cells.define` returned.
        input_features: ``F``, size of an input row.
        state_size: ``S``, size of every state; a multiple of the cell's heads.
        bias: whether to add a bias.
        device: where the parameters are made.
        dtype: dtype of the parameters: float32, float64, bfloat16 or float16.
        scalars: the step's keyword arguments, where they are not the defaults.

    Attributes:
        weights: parameter ``[G * S, S / heads + F]``, rows ordered by gate; the first columns
            multiply the hidden state, the rest the input.
        bias: parameter ``[G * S]`` or ``None``; ``[2 * G * S]`` where the cell is split, the
            input's share first.

    Raises:
        TypeError, ValueError: an argument is not what it should be.

    Example:
        >>> step = lltm.cells.Cell(lltm.cells.formulas.LSTM, 32, 128)
        >>> h, c = step(torch.randn(16, 32))
        >>> h, c = step(torch.randn(16, 32), (h, c))
    """

    weights: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        cell: Definition,
        input_features: int,
        state_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **scalars: float,
    ) -> None:
        super().__init__()
        check_sizes(cell, input_features, state_size)
        contract.check_bool(bias=bias)
        contract.check_dtype(dtype)
        self.cell = cell
        self.input_features = input_features
        self.state_size = state_size
        self.scalars = cell.scalar_values(scalars)
        shape = (cell.gates * state_size, state_size // cell.heads + input_features)
        self.weights = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        row = torch.empty(cell.pre_activations * state_size, device=device, dtype=dtype)
        self.register_parameter("bias", nn.Parameter(row) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from U(-1/sqrt(S), 1/sqrt(S))."""
        reset_parameters(self, self.state_size)

    def forward(self, input: Tensor, state: States | None = None) -> States:
        """Run one step.

        Args:
            input: ``[B, F]``, in the parameters' dtype and on their device.
            state: one ``[B, S]`` tensor a state; zeros where left out.

        Returns:
            The new states, as ``state``.

        Raises:
            RuntimeError: an argument's rank, size, dtype or device does not fit.
            TypeError: ``input`` is no tensor, or ``state`` no tuple of the cell's states.
        """
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a Tensor, got {type(input).__name__}")
        if input.dim() != 2 or input.shape[1] != self.input_features:
            raise RuntimeError(
                f"input must have shape [B, {self.input_features}], got {list(input.shape)}"
            )
        cell, scalars = self.cell, self.scalars
        weights, bias = parameters_of(self, ("weights", "bias"))
        shape = (cell.states, input.shape[0], self.state_size)
        if state is None or (isinstance(state, (tuple, list)) and len(state) == cell.states):
            given = StepArguments(input, weights, bias, tuple(state or ()), scalars, shape)
            new = run_step(cell, given)
            if new is not None:
                return new
        if state is None:
            states = input.new_zeros(shape)
        else:
            check_states("state", cell, state, (shape[1:],) * cell.states, input)
            states = torch.stack(tuple(state))
        _, last = run(cell, Arguments(input.unsqueeze(0), weights, bias, states, scalars))
        return tuple(each.clone() for each in last.unbind())

    def extra_repr(self) -> str:
        """The cell and its sizes."""
        parts = describe_sizes(self.cell, self.input_features, self.state_size)
        return ", ".join([*parts, *([] if self.bias is not None else ["bias=False"])])
