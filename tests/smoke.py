"""What every wheel computes in every torch that loads it (`nox -s crossload`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def by_import() -> None:
    """As a user does."""
    import lltm

    check(lltm.lltm_cell)


def by_loader() -> None:
    """Through what the library has registered, without the package."""
    check(torch.ops.lltm.cell)


def check(cell: Callable[..., Any]) -> None:
    """One cell, 5x3 in and 5x4 out, compared with its definition."""
    torch.manual_seed(0)
    x, h, c = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    weights, bias = torch.randn(12, 7), torch.randn(12)
    z_i, z_o, z_c = torch.nn.functional.linear(torch.cat([h, x], 1), weights, bias).chunk(3, 1)
    new_cell = c + torch.nn.functional.elu(z_c) * torch.sigmoid(z_i)
    expected = (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell)
    for found, right in zip(cell(x, weights, bias, h, c), expected, strict=True):
        torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)
