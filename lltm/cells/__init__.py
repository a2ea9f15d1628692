"""Any recurrent cell from its formula: the step in PyTorch, the rest from here.

:func:`define` makes a cell from its step, :class:`Sequence` and :class:`Cell` make modules from
the cell. Modules of known cells are here, their steps in :mod:`lltm.cells.formulas`.
"""

from __future__ import annotations

from lltm.cells import formulas
from lltm.cells._cell import Cell
from lltm.cells._define import define
from lltm.cells._definition import Definition
from lltm.cells._errors import StepError
from lltm.cells._kernels import attach, prepare
from lltm.cells._prove import Proof, prove
from lltm.cells._sequence import Sequence
from lltm.cells.shipped import GRU, LLTM, LSTM, RNN, SLSTM, PeepholeLSTM

__all__ = [
    "GRU",
    "LLTM",
    "LSTM",
    "RNN",
    "SLSTM",
    "Cell",
    "Definition",
    "PeepholeLSTM",
    "Proof",
    "Sequence",
    "StepError",
    "attach",
    "define",
    "formulas",
    "prepare",
    "prove",
]
