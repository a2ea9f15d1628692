"""The steps of the cells that ship, each the only text of its cell.

Source: the PyTorch tutorial "Custom C++ and CUDA Extensions" for the LLTM; the documentation of
torch.nn for RNN, LSTM and GRU; Gers and Schmidhuber, "Recurrent Nets that Time and Count" (2000),
for the peepholes, here one factor each instead of a weight per element; Beck et al., "xLSTM:
Extended Long Short-Term Memory" (2024), equations 8 to 17, for the sLSTM.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lltm.cells._definition import Definition, scalars_of

States = tuple[Tensor, ...]


def lltm(z: States, state: States, *, alpha: float = 1.0) -> States:
    """An LSTM without a forget gate, with an ELU candidate."""
    input_gate, output_gate, candidate = z
    _, c = state
    c = c + F.elu(candidate, alpha) * torch.sigmoid(input_gate)
    return torch.tanh(c) * torch.sigmoid(output_gate), c


def rnn_tanh(z: States, state: States) -> States:
    """Elman's network."""
    return (torch.tanh(z[0]),)


def rnn_relu(z: States, state: States) -> States:
    """Elman's network with a rectifier."""
    return (torch.relu(z[0]),)


def lstm(z: States, state: States) -> States:
    """nn.LSTM's cell, gates in its order."""
    i, f, g, o = z
    _, c = state
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def peephole_lstm(z: States, state: States, *, scale: float = 1.0) -> States:
    """An LSTM whose gates see the cell state."""
    i, f, g, o = z
    _, c = state
    i, f = i + scale * c, f + scale * c
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o + scale * c) * torch.tanh(c), c


def gru(z_input: States, z_recurrent: States, state: States) -> States:
    """nn.GRU's cell, gates in its order."""
    r_input, u_input, n_input = z_input
    r_recurrent, u_recurrent, n_recurrent = z_recurrent
    (h,) = state
    r = torch.sigmoid(r_input + r_recurrent)
    u = torch.sigmoid(u_input + u_recurrent)
    n = torch.tanh(n_input + r * n_recurrent)
    return (n + u * (h - n),)


def slstm(z: States, state: States) -> States:
    """The sLSTM of xLSTM: exponential input gate, normaliser ``n``, stabiliser ``m``."""
    i, f, g, o = z
    _, c, n, m = state
    log_f = F.logsigmoid(f)
    # Before the first step nothing is scaled yet: from an m of 0, exp(i) of a very negative i would
    # be 0, and so would n.
    m = torch.where(n > 0, m, -math.inf)
    new_m = torch.maximum(log_f + m, i)
    input_gate, forget_gate = torch.exp(i - new_m), torch.exp(log_f + m - new_m)
    c = forget_gate * c + input_gate * torch.tanh(g)
    n = forget_gate * n + input_gate
    return torch.sigmoid(o) * c / n, c, n, new_m


def _shipped(
    step: Callable[..., States], gates: int, states: int, split: bool = False
) -> Definition:
    """As ``define`` makes it, without its check: that is a test, and imports half of torch."""
    return Definition(step, gates, states, split, 1, scalars_of(step))


LLTM = _shipped(lltm, gates=3, states=2)
RNN_TANH = _shipped(rnn_tanh, gates=1, states=1)
RNN_RELU = _shipped(rnn_relu, gates=1, states=1)
LSTM = _shipped(lstm, gates=4, states=2)
PEEPHOLE_LSTM = _shipped(peephole_lstm, gates=4, states=2)
GRU = _shipped(gru, gates=3, states=1, split=True)
SLSTM = _shipped(slstm, gates=4, states=4)

SHIPPED = (LLTM, RNN_TANH, RNN_RELU, LSTM, PEEPHOLE_LSTM, GRU, SLSTM)
