"""What torch-spline-conv computes, compared with its definition."""

from __future__ import annotations


def by_import() -> None:
    """A spline of degree 1 interpolates linearly, also between the features of an edge."""
    import torch
    import torch_spline_conv

    pseudo, knots = torch.tensor([[0.0], [0.3], [0.85]]), 5
    basis, index = torch_spline_conv.spline_basis(
        pseudo, torch.tensor([knots]), torch.tensor([1], dtype=torch.uint8), 1
    )
    torch.testing.assert_close(basis.sum(1), torch.ones(3))
    torch.testing.assert_close((basis * index).sum(1), pseudo[:, 0] * (knots - 1))

    torch.manual_seed(0)
    x, weight = torch.randn(3, 2), torch.randn(knots, 2, 4)
    found = torch_spline_conv.spline_weighting(x, weight, basis, index)
    expected = torch.einsum("es,ei,esio->eo", basis, x, weight[index])
    torch.testing.assert_close(found, expected)
