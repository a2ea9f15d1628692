"""A command whose output goes to a log."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from torchproof.machine.processes import start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIMED_OUT = 124  # as the program `timeout` ends


def logged(
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path,
    limit: float,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a command into a log; its exit code, or that of `timeout` when it takes too long."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        running = start(command, file, cwd=cwd, env=env)
        try:
            return running.process.wait(limit)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            running.end()
