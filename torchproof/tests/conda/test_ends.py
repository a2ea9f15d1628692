"""`torchproof conda` that is ended takes everything it has started with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARK = "TORCHPROOF_TEST_CONDA"
LIMIT_S = 60.0  # until it has workers
GRACE_S = 5.0


def living(mark: str) -> dict[int, str]:
    """The processes with a mark, and their commands."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(process.name)] = line
    return found


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches what is started, though a shell runs this in the background without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_its_workers_end_with_it(name: str, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "torchproof", "conda"],
            env={**os.environ, MARK: mark},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        at_work = wait_until(lambda: "spawn_main" in " ".join(living(mark).values()), LIMIT_S)
        process.send_signal(signal.Signals[name])
        ended = wait_until(lambda: process.poll() is not None, GRACE_S)
        left_nothing = wait_until(lambda: not living(mark), GRACE_S)
        left = living(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        text = output.read()
    assert at_work, text
    assert ended
    assert left_nothing, left
    assert "Traceback" not in text
