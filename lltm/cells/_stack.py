"""Stack: the layers of a cell, their parameters and how they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from lltm import contract
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._layers import Packed, Run, run_backward, run_forward
from lltm.cells._layouts import Layout
from lltm.cells._module_checks import (
    check_input,
    check_reset,
    check_sizes,
    check_states,
    describe_sizes,
    parameters_of,
    reset_parameters,
)
from lltm.cells._step import States

Runs = tuple[Run, Run]
"""What runs one layer forward in time, and what runs one backward."""


class Stack(nn.Module):
    """What :class:`lltm.cells.Sequence` runs over an input of any form; its arguments are those."""

    _layout = Layout()
    """Of the parameters and the states."""
    _features = "input_features"
    """What messages call ``F``."""

    def __init__(
        self,
        cell: Definition,
        input_features: int,
        state_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **scalars: float,
    ) -> None:
        super().__init__()
        check_sizes(cell, input_features, state_size)
        contract.check_size("num_layers", num_layers)
        contract.check_bool(bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        contract.check_dtype(dtype)
        contract.check_dropout(dropout, num_layers)
        self.cell = cell
        self.input_features = input_features
        self.state_size = state_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.scalars = cell.scalar_values(scalars)
        self._all_weights = [
            self._add_parameters(layer, direction, device, dtype)
            for layer in range(num_layers)
            for direction in range(self._directions)
        ]
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _add_parameters(
        self,
        layer: int,
        direction: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> list[str]:
        """Of one layer in one direction; their names."""
        cell, state_size = self.cell, self.state_size
        output_size, *_ = self._layout.state_sizes(cell, state_size)
        features = self._directions * output_size if layer else self.input_features
        suffix = f"_l{layer}{'_reverse' if direction else ''}"
        names = []
        for name, shape in self._layout.shapes(cell, features, state_size, self.bias).items():
            empty = None if shape is None else torch.empty(shape, device=device, dtype=dtype)
            names.append(name + suffix)
            self.register_parameter(names[-1], None if empty is None else nn.Parameter(empty))
        return names

    def reset_parameters(self) -> None:
        """Draw new parameters from U(-1/sqrt(S), 1/sqrt(S))."""
        reset_parameters(self, self.state_size)

    def _initial(self, input: Tensor, hx: States | None, batch: Sequence[int]) -> Sequence[Tensor]:
        """``[N, B, S]`` of each layer and direction."""
        if hx is not None:
            return self._by_layer("hx", hx, batch, input)
        rows = batch[0] if batch else 1
        zeros = input.new_zeros((self.cell.states, rows, self.state_size))
        return (zeros,) * len(self._all_weights)

    def _by_layer(
        self, name: str, states: States, batch: Sequence[int], input: Tensor
    ) -> Sequence[Tensor]:
        """``[N, B, S]`` of each layer and direction; ``B`` is 1 for an unbatched sequence."""
        layers = len(self._all_weights)
        sizes = self._layout.state_sizes(self.cell, self.state_size)
        check_states(name, self.cell, states, [(layers, *batch, size) for size in sizes], input)
        if not batch:
            states = tuple(state.unsqueeze(1) for state in states)
        return self._layout.stacked(states)

    def _over(
        self,
        input: Tensor | PackedSequence,
        hx: States | None,
        reset: Tensor | None = None,
        reset_state: States | None = None,
    ) -> tuple[Tensor | PackedSequence, States]:
        """As :meth:`lltm.cells.Sequence.forward`."""
        if isinstance(input, PackedSequence):
            if reset is not None or reset_state is not None:
                raise TypeError(
                    "reset is for a Tensor, not for a PackedSequence, whose rows are one episode "
                    "each; pad the rows and pass a Tensor"
                )
            return self._forward_packed(input, hx)
        check_input(input, self._features, self.input_features, self.batch_first)
        if reset is not None:
            check_reset(reset, input.shape[:-1])
        batched = input.dim() == 3
        transposed = batched and self.batch_first
        if transposed:
            input = input.transpose(0, 1)
            reset = None if reset is None else reset.transpose(0, 1)
        elif not batched:
            input = input.unsqueeze(1)
            reset = None if reset is None else reset.unsqueeze(1)
        rows = input.shape[1:2] if batched else ()
        states = self._initial(input, hx, rows)
        starts = None
        if reset_state is not None:
            starts = self._by_layer("reset_state", reset_state, rows, input)
        output, last = self._run(input, (run_forward, run_backward), states, reset, starts)
        if not batched:
            return output.squeeze(1), tuple(state.squeeze(1) for state in last)
        return output.transpose(0, 1) if transposed else output, last

    def _forward_packed(
        self, input: PackedSequence, hx: States | None
    ) -> tuple[PackedSequence, States]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        contract.check_module_input(data, self._features, self.input_features)
        states = self._initial(data, hx, (int(batch_sizes[0]),))
        if sorted_indices is not None and hx is not None:
            states = [state.index_select(1, sorted_indices) for state in states]
        packed = Packed.of(batch_sizes)
        data = packed.checked(data, batch_sizes)
        output, last = self._run(data, (packed.run, packed.run_backward), states)
        if unsorted_indices is not None:
            last = tuple(state.index_select(1, unsorted_indices) for state in last)
        return PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices), last

    def _run(
        self,
        data: Tensor,
        runs: Runs,
        states: Sequence[Tensor],
        reset: Tensor | None = None,
        reset_state: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, States]:
        """All layers over ``data``, to the output and the last states."""
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                data = F.dropout(data, self.dropout, self.training)
            outputs = []
            for direction in range(self._directions):
                index = layer * self._directions + direction
                start = None if reset_state is None else reset_state[index]
                parameters = parameters_of(self, self._all_weights[index])
                compute, of_layer = self._layout.layer(self.cell, parameters)
                weights, bias, input_weights = of_layer
                shared = states[index], self.scalars, reset, start
                arguments = Arguments(data, weights, bias, *shared, input_weights)
                output, state = runs[direction](compute, arguments)
                outputs.append(output)
                last.append(state)
            data = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
        return data, self._layout.unstacked(last)

    def extra_repr(self) -> str:
        """The cell, its sizes, and what differs from the defaults."""
        defaults: dict[str, Any] = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        differing = [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        named = zip(self.cell.scalars, self.scalars, strict=True)
        scalars = [f"{name}={value:g}" for (name, default), value in named if value != default]
        return ", ".join([*self._sizes(), *differing, *scalars])

    def _sizes(self) -> list[str]:
        return describe_sizes(self.cell, self.input_features, self.state_size)
