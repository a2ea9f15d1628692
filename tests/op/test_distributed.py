"""Two gloo processes on loopback give the gradients of one."""

from __future__ import annotations

import json

import distributed_workers
import pytest
import torch.multiprocessing

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each check found wrong, in either process; both checks are run by the same two."""
    folder = tmp_path_factory.mktemp("distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(
            distributed_workers.run, (str(folder),), nprocs=distributed_workers.WORLD
        )
    results = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    assert len(results) == distributed_workers.WORLD
    return {check: [one[check] for one in results] for check in distributed_workers.CHECKS}


@pytest.mark.parametrize("check", distributed_workers.CHECKS)
def test_two_processes(check: str, wrong: dict[str, list[str]]) -> None:
    assert wrong[check] == [""] * distributed_workers.WORLD
