"""Sequence: any cell over sequences as a module, called like nn.LSTM."""

from __future__ import annotations

from typing import overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lltm.cells._stack import Stack
from lltm.cells._step import States


class Sequence(Stack):
    """A cell over sequences, called like :class:`torch.nn.LSTM`.

    ``L`` is ``num_layers`` and ``D`` is 2 if ``bidirectional``, else 1.

    Args:
        cell: what :func:`lltm.cells.define` returned.
        input_features: ``F``, size of an input row.
        state_size: ``S``, size of every state; a multiple of the cell's heads.
        num_layers: stacked layers; each reads the output of the one below.
        bias: whether every layer adds a bias.
        batch_first: whether a batched ``input`` and ``output`` are ``[B, T, ..]`` instead of
            ``[T, B, ..]``; the states are not affected.
        dropout: probability, in ``[0, 1]``, of dropping an element of each layer's output but the
            last's, in training.
        bidirectional: whether every layer also runs backward in time.
        device: where the parameters are made.
        dtype: dtype of the parameters: float32, float64, bfloat16 or float16.
        scalars: the step's keyword arguments, where they are not the defaults.

    Attributes:
        weight_l0: parameter ``[G * S, S / heads + F]`` of the first layer, rows ordered by gate;
            the first columns multiply the hidden state, the rest the layer's input. Further layers
            are ``weight_l1``.., directions backward in time ``weight_l0_reverse``..
        bias_l0: parameter ``[G * S]``; ``[2 * G * S]`` where the cell is split, the input's share
            first.

    Raises:
        TypeError, ValueError: an argument is not what it should be.

    Example:
        >>> rnn = lltm.cells.Sequence(lltm.cells.formulas.LSTM, 32, 128, num_layers=2)
        >>> output, (h, c) = rnn(torch.randn(64, 16, 32))
        >>> output.shape, c.shape
        (torch.Size([64, 16, 128]), torch.Size([2, 16, 128]))
    """

    @overload
    def forward(
        self,
        input: Tensor,
        hx: States | None = ...,
        *,
        reset: Tensor | None = ...,
        reset_state: States | None = ...,
    ) -> tuple[Tensor, States]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: States | None = ...
    ) -> tuple[PackedSequence, States]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: States | None = None,
        *,
        reset: Tensor | None = None,
        reset_state: States | None = None,
    ) -> tuple[Tensor | PackedSequence, States]:
        """Run the layers over a sequence.

        Args:
            input: ``[T, B, F]`` (``[B, T, F]`` with ``batch_first``), ``[T, F]`` for one
                unbatched sequence, or a :class:`~torch.nn.utils.rnn.PackedSequence`; in the
                parameters' dtype and on their device.
            hx: the first states, one ``[L * D, B, S]`` tensor each, or ``[L * D, S]`` for an
                unbatched ``input``; zeros where left out.
            reset: bool, laid out as ``input`` without its features: where true, an episode begins,
                and the row starts again from ``reset_state`` before that step. A direction
                backward in time starts again behind an episode's end.
            reset_state: what episodes start from, as ``hx``; zeros where left out.

        Returns:
            ``(output, states)``: the last layer's hidden states ``[T, B, D * S]``, laid out and
            packed as ``input`` is, both directions side by side; the last states of every layer
            and direction, as ``hx``. Rows of a packed batch end at their own last step.

        Raises:
            RuntimeError: an argument's rank, size, dtype or device does not fit.
            TypeError: ``input`` is no tensor, or ``hx`` no tuple of the cell's states.
        """
        return self._over(input, hx, reset, reset_state)
