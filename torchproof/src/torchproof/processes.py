"""Subprocesses with a log, a time limit, and an end that is always told in words."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# A tool killed with SIGKILL cannot stop its children; util-linux asks the kernel to.
TETHER = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


class Stopped(Exception):  # noqa: N818  # not an error: the user pressed Ctrl-C
    """The run is being stopped; nothing more is started."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    seconds: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0 and not self.timed_out

    def explain(self, limit: float) -> str:
        """The end in words: "killed by SIGABRT", "exit status 2", "passed its limit of 60 s"."""
        if self.timed_out:
            return f"passed its limit of {limit:.0f} s"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit status {self.code}"


class Processes:
    """Starts commands, and can stop all of them at once; safe to share between threads."""

    def __init__(self) -> None:
        self._live: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def live(self) -> int:
        """How many commands run now."""
        with self._lock:
            return len(self._live)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        limit: float,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run a command in its own process group, `limit` seconds at most; appends to `log`.

        Raises:
            Stopped: the run was stopped before or while the command ran.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("ab") as output:
            output.write(("$ " + " ".join(str(part) for part in command) + "\n").encode())
            output.flush()
            with self._lock:
                if self._stopped:
                    raise Stopped
                process = subprocess.Popen(
                    [*TETHER, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
                self._live.add(process)
            timed_out = False
            try:
                process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _kill_group(process)
                with self._lock:
                    self._live.discard(process)
        if self._stopped:
            raise Stopped
        return Ended(process.returncode, time.monotonic() - started, timed_out)

    def stop(self) -> None:
        """Kill everything that runs, and let nothing more start."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Also after a normal end: a test may have left children of its own behind.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
