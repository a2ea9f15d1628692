"""The cells that ship, as modules; LSTM, GRU and RNN take the place of torch's own."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lltm import contract
from lltm.cells import formulas
from lltm.cells._definition import Definition
from lltm.cells._layouts import LikeTorch, Projected
from lltm.cells._sequence import Sequence


class LLTM(Sequence):
    """:class:`Sequence` of the LLTM, with its arguments but ``cell``.

    ``alpha=1.0``, the candidate ELU's scale for negative arguments, is its scalar.
    """

    def __init__(self, input_features: int, state_size: int, *args: Any, **options: Any) -> None:
        super().__init__(formulas.LLTM, input_features, state_size, *args, **options)


class PeepholeLSTM(Sequence):
    """:class:`Sequence` of an LSTM whose gates see the cell state, with its arguments but ``cell``.

    ``scale=1.0``, the weight of the peepholes, is its scalar.
    """

    def __init__(self, input_features: int, state_size: int, *args: Any, **options: Any) -> None:
        super().__init__(formulas.PEEPHOLE_LSTM, input_features, state_size, *args, **options)


class SLSTM(Sequence):
    """:class:`Sequence` of xLSTM's sLSTM, with its arguments but ``cell``.

    Besides, ``heads=1`` is the number of blocks of the recurrent weights, which divides
    ``state_size``.
    """

    def __init__(
        self, input_features: int, state_size: int, *args: Any, heads: int = 1, **options: Any
    ) -> None:
        contract.check_size("heads", heads)
        cell = dataclasses.replace(formulas.SLSTM, heads=heads)
        super().__init__(cell, input_features, state_size, *args, **options)


class _LikeTorch(Sequence):
    """Constructor, parameters and state dict of a recurrent module of torch.

    The parameters are torch's, by name, shape, order and first values, so that initialisation,
    optimisers and checkpoints do not notice the change.
    """

    _features = "input_size"

    def __init__(
        self,
        cell: Definition,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        contract.check_size("input_size", input_size)
        contract.check_size("hidden_size", hidden_size)
        contract.check_size("proj_size", proj_size, least=0)
        most = hidden_size - 1 if cell == formulas.LSTM else 0
        if proj_size > most:
            raise ValueError(
                f"proj_size must be less than hidden_size, and 0 but for an LSTM: here at most "
                f"{most}, got {proj_size}"
            )
        self.proj_size = proj_size
        self._layout = Projected(proj_size) if proj_size else LikeTorch()
        super().__init__(
            cell,
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device,
            dtype,
        )

    @property
    def input_size(self) -> int:
        """As torch calls it."""
        return self.input_features

    @input_size.setter
    def input_size(self, size: int) -> None:
        self.input_features = size

    @property
    def hidden_size(self) -> int:
        """As torch calls it."""
        return self.state_size

    @hidden_size.setter
    def hidden_size(self, size: int) -> None:
        self.state_size = size

    @property
    def mode(self) -> str:
        """As torch calls the cell: ``LSTM``, ``GRU``, ``RNN_TANH`` or ``RNN_RELU``."""
        return self.cell.name.upper()

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: torch's modules do this for cuDNN."""

    def _sizes(self) -> list[str]:
        """As torch's: the class names the cell."""
        projected = [f"proj_size={self.proj_size}"] if self.proj_size else []
        return [*super()._sizes()[1:], *projected]


class LSTM(_LikeTorch):
    """In the place of :class:`torch.nn.LSTM`: its arguments, parameters, state dict and results.

    The arguments are ``input_size``, ``hidden_size``, ``num_layers=1``, ``bias=True``,
    ``batch_first=False``, ``dropout=0.0``, ``bidirectional=False``, ``proj_size=0``, ``device`` and
    ``dtype``: float32, float64, bfloat16 or float16. A call may have a ``reset``, as
    :meth:`Sequence.forward` has it.

    Raises:
        TypeError, ValueError: an argument is not what it should be.

    Example:
        >>> theirs, ours = torch.nn.LSTM(32, 128), lltm.cells.LSTM(32, 128)
        >>> ours.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> output, (h_n, c_n) = ours(torch.randn(64, 16, 32))
    """

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **options: Any) -> None:
        super().__init__(formulas.LSTM, input_size, hidden_size, *args, **options)


class _OneState(_LikeTorch):
    """``hx`` and ``h_n`` are tensors, as torch has it for modules with one state."""

    def forward(  # type: ignore[override]  # as torch's GRU and RNN differ from its LSTM
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        reset_state: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """As :meth:`Sequence.forward`, with a tensor for the one state."""
        for name, state in (("hx", hx), ("reset_state", reset_state)):
            if not (state is None or isinstance(state, Tensor)):
                raise TypeError(f"{name} must be a Tensor, got {contract.describe(state)}")
        states = None if hx is None else (hx,)
        starts = None if reset_state is None else (reset_state,)
        call: Any = super().forward
        output, (h_n,) = call(input, states, reset=reset, reset_state=starts)
        return output, h_n


class GRU(_OneState):
    """In the place of :class:`torch.nn.GRU`: its arguments, parameters, state dict and results.

    The arguments are those of :class:`LSTM` without ``proj_size``.
    """

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **options: Any) -> None:
        super().__init__(formulas.GRU, input_size, hidden_size, *args, **options)


class RNN(_OneState):
    """In the place of :class:`torch.nn.RNN`: its arguments, parameters, state dict and results.

    The arguments are those of :class:`LSTM` without ``proj_size``, with ``nonlinearity="tanh"``, or
    ``"relu"``, after ``num_layers``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **options: Any,
    ) -> None:
        cells = {"tanh": formulas.RNN_TANH, "relu": formulas.RNN_RELU}
        if nonlinearity not in tuple(cells):  # which may be no key at all
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        cell = cells[nonlinearity]
        super().__init__(cell, input_size, hidden_size, num_layers, *args, **options)
        self.nonlinearity = nonlinearity
