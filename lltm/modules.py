"""The LLTM as modules: LLTM, the tutorial's cell, and LLTMSequence, called like nn.LSTM."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from lltm import contract
from lltm.functional import lltm_cell, lltm_sequence
from lltm.stream import LLTMStream

State = tuple[Tensor, Tensor]
"""A hidden and a cell state."""
_Run = Callable[..., tuple[Tensor, Tensor, Tensor]]


def _reset(module: nn.Module, state_size: int) -> None:
    """Draw every parameter from U(-1/sqrt(S), 1/sqrt(S)), as the tutorial and nn.LSTM do."""
    bound = 1.0 / math.sqrt(state_size)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -bound, bound)


class LLTM(nn.Module):
    """One step of the LLTM, a drop-in for the class of PyTorch's tutorial.

    Args:
        input_features: ``F``, size of an input row.
        state_size: ``S``, size of the hidden and the cell state.
        bias: whether to add a bias.
        alpha: the candidate ELU's scale for negative arguments, finite and not negative.
        device: where the parameters are made.
        dtype: dtype of the parameters: float32, float64, bfloat16 or float16.

    Attributes:
        weights: parameter ``[3S, S + F]``, rows ordered input gate, output gate, candidate cell;
            the first ``S`` columns multiply the hidden state, the rest the input.
        bias: parameter ``[3S]`` or ``None``. A ``state_dict`` of the tutorial, whose bias is
            ``[1, 3S]``, loads too; :mod:`lltm.tutorial` has what else a checkpoint needs.

    Both are drawn from U(-1/sqrt(S), 1/sqrt(S)).

    Raises:
        TypeError: a size is not an int, ``bias`` no bool, or ``alpha`` no number.
        ValueError: a size is not positive, ``alpha`` is negative or not finite, or the ops do not
            compute in ``dtype``.

    Example:
        >>> rnn = lltm.LLTM(input_features=32, state_size=128)
        >>> x = torch.randn(16, 32)
        >>> new_h, new_cell = rnn(x)
        >>> new_h, new_cell = rnn(x, (new_h, new_cell))

    Source: PyTorch tutorial "Custom C++ and CUDA Extensions".
    """

    weights: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        input_features: int,
        state_size: int,
        bias: bool = True,
        alpha: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        contract.check_size("input_features", input_features)
        contract.check_size("state_size", state_size)
        contract.check_bool(bias=bias)
        contract.check_alpha(alpha)
        contract.check_dtype(dtype)
        self.input_features = input_features
        self.state_size = state_size
        self.alpha = alpha
        shape = (3 * state_size, state_size + input_features)
        self.weights = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        row = nn.Parameter(torch.empty(3 * state_size, device=device, dtype=dtype))
        self.register_parameter("bias", row if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters from U(-1/sqrt(S), 1/sqrt(S))."""
        _reset(self, self.state_size)

    def forward(self, input: Tensor, state: State | None = None) -> State:
        """Run one step.

        Args:
            input: ``[B, F]``, in the parameters' dtype and on their device.
            state: ``(h, c)``, each ``[B, S]``; zeros where left out.

        Returns:
            ``(new_h, new_cell)``, each ``[B, S]``.

        Raises:
            RuntimeError: an argument's rank, size, dtype or device does not fit.
            TypeError: ``input`` is no tensor, or ``state`` no pair of tensors.
        """
        if state is None:
            if not isinstance(input, Tensor):
                raise TypeError(f"input must be a Tensor, got {type(input).__name__}")
            zeros = input.new_zeros((*input.shape[:-1], self.state_size))
            state = (zeros, zeros)
        contract.check_state("state", state)
        try:
            return lltm_cell(input, self.weights, self.bias, *state, self.alpha)
        except RuntimeError:
            self._explain(input)
            raise

    def _explain(self, input: Tensor) -> None:
        """Before the op's own words, which find that the weights do not fit the input."""
        if input.dim() != 2:
            return
        try:
            contract.check_module_input(input, "input_features", self.input_features)
        except RuntimeError as error:
            raise error from None

    def stream(self, batch_size: int = 1) -> LLTMStream:
        """For inference where inputs arrive one at a time: the step over these parameters, packed.

        Args:
            batch_size: ``B`` of every input.

        Raises:
            ValueError: the parameters are not on the CPU.
        """
        return LLTMStream([(self.weights, self.bias)], batch_size, self.alpha)

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        parts = [f"{self.input_features}, {self.state_size}"]
        if self.bias is None:
            parts.append("bias=False")
        if self.alpha != 1.0:
            parts.append(f"alpha={self.alpha}")
        return ", ".join(parts)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        key = f"{prefix}bias"
        value = state_dict.get(key)
        if isinstance(value, Tensor) and value.shape == (1, 3 * self.state_size):
            state_dict[key] = value.reshape(-1)
        super()._load_from_state_dict(state_dict, prefix, *args)


class LLTMSequence(nn.Module):
    """The LLTM over sequences, called like :class:`torch.nn.LSTM`.

    ``L`` is ``num_layers`` and ``D`` is 2 if ``bidirectional``, else 1.

    Args:
        input_features: ``F``, size of an input row.
        state_size: ``S``, size of the hidden and the cell state.
        num_layers: stacked layers; each reads the output of the one below.
        bias: whether every layer adds a bias.
        batch_first: whether a batched ``input`` and ``output`` are ``[B, T, ..]`` instead of
            ``[T, B, ..]``; ``h_0``, ``c_0``, ``h_n`` and ``c_n`` are not affected.
        dropout: probability, in ``[0, 1]``, of dropping an element of each layer's output but the
            last's, in training.
        bidirectional: whether every layer also runs backward in time.
        alpha: the candidate ELU's scale for negative arguments, finite and not negative.
        device: where the parameters are made.
        dtype: dtype of the parameters: float32, float64, bfloat16 or float16.

    Attributes:
        weight_l0: parameter ``[3S, S + F]`` of the first layer, laid out as
            :attr:`LLTM.weights`; ``weight_l{k}`` of layer ``k`` is ``[3S, S + D * S]``. The
            backward direction's names end in ``_reverse``.
        bias_l0: parameter ``[3S]``, named alike; ``None`` without ``bias``.

    All are drawn from U(-1/sqrt(S), 1/sqrt(S)).

    Raises:
        TypeError: a size is not an int, ``bias``, ``batch_first`` or ``bidirectional`` no bool, or
            ``dropout`` or ``alpha`` no number.
        ValueError: a size is not positive, ``dropout`` is not in ``[0, 1]``, ``alpha`` is negative
            or not finite, or the ops do not compute in ``dtype``.

    Example:
        >>> rnn = lltm.LLTMSequence(input_features=32, state_size=128, num_layers=2)
        >>> output, (h_n, c_n) = rnn(torch.randn(64, 16, 32))
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        alpha: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        contract.check_size("input_features", input_features)
        contract.check_size("state_size", state_size)
        contract.check_size("num_layers", num_layers)
        contract.check_bool(bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        contract.check_alpha(alpha)
        contract.check_dtype(dtype)
        contract.check_dropout(dropout, num_layers)
        self.input_features = input_features
        self.state_size = state_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.alpha = alpha
        for layer in range(num_layers):
            features = input_features if layer == 0 else self._directions * state_size
            for direction in range(self._directions):
                weight_name, bias_name = self._names(layer, direction)
                shape = (3 * state_size, state_size + features)
                weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                row = nn.Parameter(torch.empty(3 * state_size, device=device, dtype=dtype))
                self.register_parameter(weight_name, weight)
                self.register_parameter(bias_name, row if bias else None)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @staticmethod
    def _names(layer: int, direction: int) -> tuple[str, str]:
        suffix = f"_l{layer}{'_reverse' if direction else ''}"
        return f"weight{suffix}", f"bias{suffix}"

    def reset_parameters(self) -> None:
        """Draw new parameters from U(-1/sqrt(S), 1/sqrt(S))."""
        _reset(self, self.state_size)

    @overload
    def forward(self, input: Tensor, hx: State | None = ...) -> tuple[Tensor, State]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: State | None = ...
    ) -> tuple[PackedSequence, State]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
    ) -> tuple[Tensor | PackedSequence, State]:
        """Run the layers over a sequence.

        Args:
            input: ``[T, B, F]`` (``[B, T, F]`` with ``batch_first``), ``[T, F]`` for one
                unbatched sequence, or a :class:`~torch.nn.utils.rnn.PackedSequence`; in the
                parameters' dtype and on their device.
            hx: ``(h_0, c_0)``, each ``[L * D, B, S]``, or ``[L * D, S]`` for an unbatched
                ``input``; zeros where left out.

        Returns:
            ``(output, (h_n, c_n))``: the last layer's hidden states ``[T, B, D * S]``, laid out
            and packed as ``input`` is, both directions side by side; the last hidden and cell
            state of every layer and direction, shaped as ``h_0`` and ``c_0``. Rows of a packed
            batch end at their own last step.

        Raises:
            RuntimeError: an argument's rank, size, dtype or device does not fit.
            TypeError: ``input`` is no tensor, or ``hx`` no pair of tensors.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if not isinstance(input, Tensor):
            raise TypeError(
                f"input must be a Tensor or a PackedSequence, got {type(input).__name__}"
            )
        batched = input.dim() == 3
        if not batched and input.dim() != 2:
            batch = "[B, T, F]" if self.batch_first else "[T, B, F]"
            raise RuntimeError(
                f"input must have shape {batch}, or [T, F] unbatched, got {list(input.shape)}"
            )
        contract.check_module_input(input, "input_features", self.input_features)
        transposed = batched and self.batch_first
        steps = input.transpose(0, 1) if transposed else input if batched else input.unsqueeze(1)
        batch_shape = (steps.shape[1],) if batched else ()
        h_0, c_0 = self._initial(input, hx, batch_shape)
        if not batched:
            h_0, c_0 = h_0.unsqueeze(1), c_0.unsqueeze(1)
        output, h_n, c_n = self._run(steps, (lltm_sequence, _run_backward), h_0, c_0)
        if not batched:
            return output.squeeze(1), (h_n.squeeze(1), c_n.squeeze(1))
        # A view that transposes nothing is a view still, and cannot be detached in place.
        return output.transpose(0, 1) if transposed else output, (h_n, c_n)

    def _forward_packed(
        self,
        input: PackedSequence,
        hx: State | None,
    ) -> tuple[PackedSequence, State]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        contract.check_module_input(data, "input_features", self.input_features)
        h_0, c_0 = self._initial(data, hx, (int(batch_sizes[0]),))
        if sorted_indices is not None and hx is not None:
            h_0, c_0 = h_0.index_select(1, sorted_indices), c_0.index_select(1, sorted_indices)
        groups = _groups(batch_sizes)
        runs = (partial(_run_packed_forward, groups), partial(_run_packed_backward, groups))
        output, h_n, c_n = self._run(data, runs, h_0, c_0)
        if unsorted_indices is not None:
            h_n, c_n = h_n.index_select(1, unsorted_indices), c_n.index_select(1, unsorted_indices)
        packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return packed, (h_n, c_n)

    def _initial(self, input: Tensor, hx: State | None, batch_shape: tuple[int, ...]) -> State:
        shape = (self.num_layers * self._directions, *batch_shape, self.state_size)
        if hx is None:
            zeros = input.new_zeros(shape)
            return zeros, zeros
        contract.check_state("hx", hx)
        terms = "[L * D, B, S]" if batch_shape else "[L * D, S]"
        for name, part in zip(("h_0", "c_0"), hx, strict=True):
            if part.shape != shape:
                raise RuntimeError(
                    f"{name} of hx must have shape {terms} = {list(shape)}, got {list(part.shape)}"
                )
        return hx

    def _run(
        self, data: Tensor, runs: tuple[_Run, _Run], h_0: Tensor, c_0: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All layers over ``data``, by ``runs``: one layer forward and one backward in time."""
        h_n, c_n = [], []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                data = F.dropout(data, self.dropout, self.training)
            outputs = []
            for direction in range(self._directions):
                weight_name, bias_name = self._names(layer, direction)
                output, h, c = runs[direction](
                    data,
                    getattr(self, weight_name),
                    getattr(self, bias_name),
                    h_0[layer * self._directions + direction],
                    c_0[layer * self._directions + direction],
                    self.alpha,
                )
                outputs.append(output)
                h_n.append(h)
                c_n.append(c)
            data = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
        return data, torch.stack(h_n), torch.stack(c_n)

    def stream(self, batch_size: int = 1) -> LLTMStream:
        """For inference where inputs arrive one at a time: all layers, their parameters packed.

        Args:
            batch_size: ``B`` of every input.

        Raises:
            ValueError: the module is bidirectional, so that a step needs inputs yet to come; or the
                parameters are not on the CPU.
        """
        if self.bidirectional:
            raise ValueError(
                "a bidirectional module cannot be streamed: it starts at the last step"
            )
        names = (self._names(layer, 0) for layer in range(self.num_layers))
        layers = [(getattr(self, weights), getattr(self, bias)) for weights, bias in names]
        return LLTMStream(layers, batch_size, self.alpha)

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "alpha": 1.0,
        }
        differing = [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return ", ".join([f"{self.input_features}, {self.state_size}", *differing])


def _run_backward(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor]:
    output, h_n, c_n = lltm_sequence(input.flip(0), weights, bias, h0, c0, alpha)
    return output.flip(0), h_n, c_n


# A packed batch is sorted by falling length, so the rows alive at a step are always the first ones.
# Steps with the same rows alive form a group, and each group is one call of the op: no row is
# computed beyond its end, and a batch of B sequences needs at most B calls.


def _groups(batch_sizes: Tensor) -> list[tuple[int, int]]:
    """``(steps, rows)`` of each run of equal batch sizes, in order of time."""
    rows, steps = torch.unique_consecutive(batch_sizes, return_counts=True)
    return list(zip(steps.tolist(), rows.tolist(), strict=True))


def _split(data: Tensor, groups: list[tuple[int, int]]) -> list[Tensor]:
    """Packed ``[sum of lengths, F]`` as one ``[steps, rows, F]`` per group."""
    parts = torch.split(data, [steps * rows for steps, rows in groups])
    return [part.unflatten(0, group) for part, group in zip(parts, groups, strict=True)]


def _run_packed_forward(
    groups: list[tuple[int, int]],
    data: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor]:
    h, c = h0, c0
    outputs, ended_h, ended_c = [], [], []
    for part in _split(data, groups):
        rows = part.shape[1]
        if rows < h.shape[0]:
            ended_h.append(h[rows:])
            ended_c.append(c[rows:])
        output, h, c = lltm_sequence(part, weights, bias, h[:rows], c[:rows], alpha)
        outputs.append(output.flatten(0, 1))
    h_n = torch.cat([h, *reversed(ended_h)])
    c_n = torch.cat([c, *reversed(ended_c)])
    return torch.cat(outputs), h_n, c_n


def _run_packed_backward(
    groups: list[tuple[int, int]],
    data: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor]:
    h, c = h0[:0], c0[:0]
    outputs = []
    for part in reversed(_split(data, groups)):
        alive, rows = h.shape[0], part.shape[1]
        h = torch.cat([h, h0[alive:rows]])
        c = torch.cat([c, c0[alive:rows]])
        output, h, c = _run_backward(part, weights, bias, h, c, alpha)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs[::-1]), h, c
