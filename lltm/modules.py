"""The LLTM as modules: LLTM, the tutorial's cell, and LLTMSequence, called like nn.LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lltm import contract
from lltm.cells import formulas
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._layers import Layer
from lltm.cells._layouts import Layout, Weights
from lltm.cells._module_checks import check_states, reset_parameters
from lltm.cells._stack import Stack
from lltm.functional import lltm_cell, lltm_sequence
from lltm.stream import LLTMStream

State = tuple[Tensor, Tensor]
"""A hidden and a cell state."""


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
        reset_parameters(self, self.state_size)

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
            self._explain(input, state)
            raise

    def _explain(self, input: Tensor, state: State) -> None:
        """Before the op's own words, which find that the weights do not fit the others."""
        if input.dim() != 2:
            return
        shape = (input.shape[0], self.state_size)
        try:
            contract.check_module_input(input, "input_features", self.input_features)
            check_states("state", formulas.LLTM, state, (shape, shape), input)
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


class _OfTheOp(Layout):
    """A layer is one call of :func:`lltm.lltm_sequence`."""

    def layer(self, cell: Definition, parameters: Sequence[Tensor]) -> tuple[Layer, Weights]:
        """The same for every layer."""
        weights, bias = parameters
        return _run, (weights, bias, None)


def _run(arguments: Arguments) -> tuple[Tensor, Tensor]:
    h0, c0 = arguments.states.unbind()
    weights, bias = arguments.weights, arguments.bias
    output, h_n, c_n = lltm_sequence(arguments.input, weights, bias, h0, c0, *arguments.scalars)
    return output, torch.stack((h_n, c_n))


class LLTMSequence(Stack):
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

    _layout = _OfTheOp()

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
        contract.check_alpha(alpha)
        super().__init__(
            formulas.LLTM,
            input_features,
            state_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device,
            dtype,
            alpha=alpha,
        )

    @property
    def alpha(self) -> float:
        """The candidate ELU's scale for negative arguments."""
        return self.scalars[0]

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        contract.check_alpha(alpha)
        self.scalars = (alpha,)

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
        output, (h_n, c_n) = self._over(input, hx)
        return output, (h_n, c_n)

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
        layers = [tuple(getattr(self, name) for name in names) for names in self._all_weights]
        return LLTMStream(layers, batch_size, self.alpha)

    def _sizes(self) -> list[str]:
        return super()._sizes()[1:]
