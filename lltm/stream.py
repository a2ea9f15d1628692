"""Inference one step at a time: weights packed once, states kept, nothing allocated per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch, contract

Layer = tuple[Tensor, "Tensor | None"]
"""``weights`` ``[3S, S + F]`` and ``bias`` ``[3S]``, ``[1, 3S]`` or ``None``."""


class _LayerStream:
    """One layer: its packed weights, its cell state, and two hidden states that take turns."""

    def __init__(self, weights: Tensor, bias: Tensor | None, alpha: float, batch_size: int) -> None:
        weights = weights.detach()
        self._packed = torch.ops.lltm.pack.default(weights)
        self._bias = None if bias is None else bias.detach().clone()
        self._alpha = alpha
        state = weights.shape[0] // 3
        self.features = weights.shape[1] - state
        self.h = weights.new_zeros(batch_size, state)
        self.cell = weights.new_zeros(batch_size, state)
        self._spare = torch.empty_like(self.h)
        self._step: Any = torch.ops.lltm.stream_step.default

    def __getstate__(self) -> dict[str, Any]:
        """Without the op, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _step=torch.ops.lltm.stream_step.default)

    def step(self, input: Tensor) -> Tensor:
        self._step(input, self._packed, self._bias, self.h, self.cell, self._spare, self._alpha)
        self.h, self._spare = self._spare, self.h
        return self.h


def _check_layers(layers: Sequence[Layer]) -> None:
    if not isinstance(layers, (list, tuple)):
        raise TypeError(f"layers must be pairs (weights, bias), got {type(layers).__name__}")
    if not layers:
        raise ValueError("layers must hold at least one (weights, bias), got none")
    below: Tensor | None = None
    for index, layer in enumerate(layers):
        if not isinstance(layer, (list, tuple)) or len(layer) != 2:
            raise TypeError(
                f"layers must be pairs (weights, bias), got {contract.describe(layer)} at {index}"
            )
        weights, bias = layer
        contract.check_types("stream", ("weights", "bias"), (weights, bias))
        if weights.device.type != "cpu":
            raise ValueError(f"weights must be on cpu to be streamed, got {weights.device}")
        contract.check_pack(weights)
        state = weights.shape[0] // 3
        contract.check_bias("stream", bias, weights, state)
        if below is not None:
            _check_above(weights, below, index)
        below = weights


def _check_above(weights: Tensor, below: Tensor, index: int) -> None:
    """A layer reads the hidden state of the one below it, and has as large a state of its own."""
    state = below.shape[0] // 3
    if weights.shape != (3 * state, 2 * state) or weights.dtype != below.dtype:
        raise ValueError(
            f"layers[{index}] must have weights [3S, 2S] = {[3 * state, 2 * state]} of "
            f"{below.dtype}, S and dtype of layers[{index - 1}], got {list(weights.shape)} of "
            f"{weights.dtype}"
        )


def _check_constant(**tensors: Tensor | None) -> None:
    """What a stream computes is a constant to autograd: a derivative of it would be zero."""
    if not _dispatch.is_transformed():
        return
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if _dispatch.has_tangent((tensor,)):
            how = "has a tangent"
        elif torch._C._functorch.is_gradtrackingtensor(tensor) and tensor.requires_grad:
            how = "is differentiated by torch.func"
        else:
            continue
        raise NotImplementedError(
            f"LLTMStream has no derivative, and {name} {how}; call LLTM or LLTMSequence, which have"
        )


def _checked(state: Sequence[Tensor], like: Sequence[Tensor]) -> Sequence[Tensor]:
    """A state to start from, if it can be one."""
    contract.check_state("state", state)
    for name, value, own in zip(("h", "cell"), state, like, strict=True):
        _check_constant(state=value)
        if value.shape != own.shape:
            raise ValueError(
                f"state: {name} must have shape [num_layers, B, S] = {list(own.shape)}, got "
                f"{list(value.shape)}"
            )
    return state


class LLTMStream:
    """The LLTM step by step, for inference where inputs arrive one at a time.

    The weights are copied into the layout that the kernels read fastest, once; a step then costs
    one kernel per layer and allocates nothing. :meth:`lltm.modules.LLTM.stream` and
    :meth:`lltm.modules.LLTMSequence.stream` make one of a module. It has no gradients, and one
    stream serves one thread at a time.

    Args:
        layers: ``(weights, bias)`` of each layer, CPU tensors of one dtype: weights
            ``[3S, S + F]``, above the first layer ``[3S, 2S]``; bias ``[3S]``, ``[1, 3S]`` or
            ``None``. A later change of them is not seen.
        batch_size: ``B``, fixed, since the states' memory is.
        alpha: the candidate ELU's scale.

    Raises:
        RuntimeError: weights or a bias of a wrong rank, size, dtype or device.
        TypeError: layers that are no pairs of tensors, or a ``batch_size`` that is no int.
        ValueError: no layers, weights that are not on the CPU, layers that do not fit each other,
            or a negative ``batch_size`` or ``alpha``.
    """

    def __init__(self, layers: Sequence[Layer], batch_size: int = 1, alpha: float = 1.0) -> None:
        contract.check_size("batch_size", batch_size, least=0)
        contract.check_alpha(alpha)
        _check_layers(layers)
        for weights, bias in layers:
            _check_constant(weights=weights, bias=bias)
        self._layers = tuple(
            _LayerStream(weights, bias, alpha, batch_size) for weights, bias in layers
        )

    def step(self, input: Tensor) -> Tensor:
        """Advance every layer by one step.

        Args:
            input: ``[B, F]``, dtype of the weights; not a result of the step before the last,
                whose memory this step writes.

        Returns:
            The last layer's new hidden state ``[B, S]``, in memory that the step after the next
            will overwrite: clone it to keep it.

        Raises:
            RuntimeError: ``input``'s rank, size, dtype or device does not fit, or its memory is
                that of the result.
            TypeError: ``input`` is no tensor.
        """
        contract.check_types("stream_step", ("input",), (input,))
        if torch.compiler.is_compiling():  # Dynamo knows no_grad, but not the guard below
            with torch.no_grad():
                return self._advance(input)
        _check_constant(input=input)
        # Straight to the kernels: the detour through lltm.ops takes as long as a small step.
        try:
            with torch._C._AutoDispatchBelowADInplaceOrView():
                result = self._advance(input)
        except RuntimeError:
            self._explain(input)
            raise
        # So that autograd notices where a result that it saved is no longer there.
        torch.autograd.graph.increment_version([layer.h for layer in self._layers])
        return result

    def _explain(self, input: Tensor) -> None:
        """Before the op's own words, which compare ``input`` with what the caller never gave."""
        layer = self._layers[0]
        shape = layer.h.shape[0], layer.features
        if tuple(input.shape) != shape:
            raise RuntimeError(
                f"input must have shape [B, F] = {list(shape)}, B the stream's batch_size, got "
                f"{list(input.shape)}"
            ) from None
        for kind in ("dtype", "device"):
            own, got = getattr(layer.h, kind), getattr(input, kind)
            if got != own:
                raise RuntimeError(
                    f"input must have the {kind} of the stream's weights, {own}, got {got}"
                ) from None

    def _advance(self, input: Tensor) -> Tensor:
        for layer in self._layers:
            input = layer.step(input)
        return input

    @property
    def state(self) -> tuple[Tensor, Tensor]:
        """Copies of the hidden and the cell states, ``[num_layers, B, S]`` each."""
        return (
            torch.stack([layer.h for layer in self._layers]),
            torch.stack([layer.cell for layer in self._layers]),
        )

    @torch.no_grad()
    def reset(self, state: tuple[Tensor, Tensor] | None = None) -> None:
        """Start again from ``state``, as :attr:`state` gives it, or from zeros.

        Raises:
            TypeError: a state that is no pair of tensors.
            ValueError: a state that is not ``[num_layers, B, S]``.
        """
        current = self.state
        h, cell = map(torch.zeros_like, current) if state is None else _checked(state, current)
        for index, layer in enumerate(self._layers):
            layer.h.copy_(h[index])
            layer.cell.copy_(cell[index])
