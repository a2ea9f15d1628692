"""Sequence: any cell over sequences as a module, called like nn.LSTM."""

from __future__ import annotations

from typing import overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lltm import contract
from lltm.cells._layers import Packed, run_backward, run_forward
from lltm.cells._module_checks import check_input, check_reset
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

    _features = "input_features"
    """What messages call ``F``."""

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
            starts = self._by_layer("reset_state", reset_state, rows)
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
        output, last = self._run(data, (packed.run, packed.run_backward), states)
        if unsorted_indices is not None:
            last = tuple(state.index_select(1, unsorted_indices) for state in last)
        return PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices), last
