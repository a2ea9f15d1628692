"""locks/ has what the matrix's environments require, for each torch of it."""

from __future__ import annotations

import pytest
from torchproof.machine import lockfiles
from torchproof.machine.environments import locked, requirements

from torchproof import config

MATRIX = config.load()


@pytest.mark.parametrize("torch", [torch.version for torch in MATRIX.torch])
def test_each_torch_of_the_matrix_has_a_lock_with_all_that_is_required(torch: str) -> None:
    lock = locked(torch)
    assert lock is not None
    assert lock.unmet((f"torch=={torch}", *requirements(), *lockfiles.ALWAYS)) == []


def test_no_address_is_in_a_lock() -> None:
    folder = config.ROOT / config.project().locks
    assert not [file for file in folder.glob("*.txt") if "://" in file.read_text(encoding="utf-8")]
