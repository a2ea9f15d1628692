"""Two gloo processes on loopback give the gradients of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import distributed_workers
import pytest
import torch.multiprocessing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("check", distributed_workers.CHECKS)
def test_two_processes(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = (check, str(tmp_path / "store"))
    torch.multiprocessing.spawn(
        distributed_workers.run, arguments, nprocs=distributed_workers.WORLD
    )
