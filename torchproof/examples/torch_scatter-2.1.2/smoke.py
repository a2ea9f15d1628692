"""What torch-scatter computes, compared with torch's own operations."""

from __future__ import annotations


def by_import() -> None:
    """A sum and a maximum of each group, and the gradient of the sum."""
    import torch
    import torch_scatter

    torch.manual_seed(0)
    values = torch.randn(7, 3, requires_grad=True)
    groups, starts = torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 2, 5, 7])
    parts = [values[groups == group] for group in range(3)]
    sums = torch_scatter.segment_csr(values, starts, reduce="sum")
    torch.testing.assert_close(sums, torch.stack([part.sum(0) for part in parts]))
    largest, _ = torch_scatter.scatter_max(values, groups, dim=0)
    torch.testing.assert_close(largest, torch.stack([part.amax(0) for part in parts]))
    (gradient,) = torch.autograd.grad(sums.sum(), values)
    torch.testing.assert_close(gradient, torch.ones_like(values))
