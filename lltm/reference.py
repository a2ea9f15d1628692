"""The definition of correct: the LLTM in plain PyTorch.

Every other backend is proven equal to these two functions, and every derivative that no kernel
computes (forward mode, second and higher orders, per-sample weights under ``vmap``) is the
derivative of these two functions.

Source: PyTorch tutorial "Custom C++ and CUDA Extensions".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cell(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    old_cell: Tensor,
    alpha: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """One LLTM step: an LSTM without a forget gate, with an ELU candidate.

    Args:
        input: ``[B, F]``, floating point.
        weights: ``[3S, S + F]``; the first ``S`` columns multiply ``old_h``, the rest ``input``.
        bias: ``[3S]``, ``[1, 3S]`` or ``None``.
        old_h: hidden state ``[B, S]``.
        old_cell: cell state ``[B, S]``.
        alpha: the ELU's scale for negative arguments, finite and not negative.

    Returns:
        ``(new_h, new_cell)``, each ``[B, S]``, in the dtype and on the device of ``input``.
    """
    x = torch.cat([old_h, input], dim=1)
    z = F.linear(x, weights, None if bias is None else bias.reshape(-1))
    z_input, z_output, z_candidate = z.chunk(3, dim=1)
    input_gate = torch.sigmoid(z_input)
    output_gate = torch.sigmoid(z_output)
    candidate_cell = F.elu(z_candidate, alpha)
    new_cell = old_cell + candidate_cell * input_gate
    new_h = torch.tanh(new_cell) * output_gate
    return new_h, new_cell


def sequence(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run :func:`cell` over the leading (time) dimension of ``input``.

    Args:
        input: ``[T, B, F]``, floating point.
        weights: ``[3S, S + F]``, as for :func:`cell`.
        bias: ``[3S]``, ``[1, 3S]`` or ``None``.
        h0: initial hidden state ``[B, S]``.
        c0: initial cell state ``[B, S]``.
        alpha: the ELU's scale, as for :func:`cell`.

    Returns:
        ``(output, h_n, c_n)``: ``[T, B, S]`` hidden states, and the last hidden and cell state,
        each ``[B, S]`` (for ``T = 0`` the initial ones).
    """
    h, c = h0, c0
    outputs = []
    for step in input.unbind(0):
        h, c = cell(step, weights, bias, h, c, alpha)
        outputs.append(h)
    if not outputs:
        return input.new_empty((0, *h0.shape)), h0.clone(), c0.clone()
    return torch.stack(outputs), h.clone(), c.clone()
