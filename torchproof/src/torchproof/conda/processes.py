"""A command whose output goes to a log."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


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
        try:
            return subprocess.run(
                command,
                stdout=file,
                stderr=file,
                cwd=cwd,
                timeout=limit,
                check=False,
                env={**os.environ, **(env or {})},
            ).returncode
        except subprocess.TimeoutExpired:
            return 124
