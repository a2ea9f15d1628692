"""Inference one step at a time: weights packed once, states kept, nothing allocated per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lltm import contract

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
        self.h = weights.new_zeros(batch_size, state)
        self.cell = weights.new_zeros(batch_size, state)
        self._spare = torch.empty_like(self.h)
        self._step: Any = torch.ops.lltm.stream_step.default

    def step(self, input: Tensor) -> Tensor:
        self._step(input, self._packed, self._bias, self.h, self.cell, self._spare, self._alpha)
        self.h, self._spare = self._spare, self.h
        return self.h


class LLTMStream:
    """The LLTM step by step, for inference where inputs arrive one at a time.

    The weights are copied into the layout that the kernels read fastest, once; a step then costs
    one kernel per layer and allocates nothing. :meth:`lltm.modules.LLTM.stream` and
    :meth:`lltm.modules.LLTMSequence.stream` make one of a module. It has no gradients, and one
    stream serves one thread at a time.

    Args:
        layers: ``(weights, bias)`` of each layer, CPU tensors of one dtype: weights
            ``[3S, S + F]``, bias ``[3S]``, ``[1, 3S]`` or ``None``. A later change of them is not
            seen.
        batch_size: ``B``, fixed, since the states' memory is.
        alpha: the candidate ELU's scale.

    Raises:
        RuntimeError: weights of a wrong rank, size or dtype.
        ValueError: no layers, or weights that are not on the CPU.
    """

    def __init__(self, layers: Sequence[Layer], batch_size: int = 1, alpha: float = 1.0) -> None:
        if not layers:
            raise ValueError("layers must hold at least one (weights, bias), got none")
        for weights, _ in layers:
            contract.check_types("stream", ("weights",), (weights,))
            if weights.device.type != "cpu":
                raise ValueError(f"weights must be on cpu to be streamed, got {weights.device}")
        self._layers = tuple(
            _LayerStream(weights, bias, alpha, batch_size) for weights, bias in layers
        )

    @torch.no_grad()
    def step(self, input: Tensor) -> Tensor:
        """Advance every layer by one step.

        Args:
            input: ``[B, F]``, dtype of the weights.

        Returns:
            The last layer's new hidden state ``[B, S]``, in memory that the step after the next
            will overwrite: clone it to keep it.

        Raises:
            RuntimeError: ``input``'s rank, size, dtype or device does not fit.
        """
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
        """Start anew from ``state``, as :attr:`state` gives it, or from zeros.

        Raises:
            ValueError: a state that is not ``[num_layers, B, S]``.
        """
        for name, current, value in zip(
            ("h", "cell"), self.state, state or (None, None), strict=True
        ):
            if value is not None and value.shape != current.shape:
                raise ValueError(
                    f"state: {name} must have shape [num_layers, B, S] = {list(current.shape)}, "
                    f"got {list(value.shape)}"
                )
            for index, layer in enumerate(self._layers):
                own: Tensor = getattr(layer, name)
                if value is None:
                    own.zero_()
                else:
                    own.copy_(value[index])
