"""What torchdtw computes, compared with the recurrence of dynamic time warping."""

from __future__ import annotations

from typing import Any


def by_import() -> None:
    """As a user does."""
    import torchdtw

    check(torchdtw.dtw)


def by_loader() -> None:
    """Through what the library has registered, without the package."""
    import torch

    check(torch.ops.torchdtw.dtw)


def check(dtw: Any) -> None:
    """The cheapest way through a table of distances, over its number of steps."""
    import torch

    distances = torch.tensor([[0.0, 5.0, 9.0], [4.0, 1.0, 8.0], [7.0, 6.0, 2.0]])
    torch.testing.assert_close(dtw(distances), torch.tensor((0.0 + 1.0 + 2.0) / 3))
