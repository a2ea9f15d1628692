"""Subprocesses with a log, a time limit, and a sentence for every way they end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torchproof.files import read_end

# As few modules of Python as it needs, so that it starts in some 20 ms.
SUPERVISE = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervise.py")))
# How installers, compilers and Python begin the line that says why they failed.
REASON = re.compile(r"^(error|cause):|: (fatal )?error: |^[\w.]*Error: ", re.IGNORECASE)

# Where that line is looked for, and how much of it is shown.
LOG_END = 1 << 20
LINE = 300
PYTEST_VARIABLES = (
    "PYTEST_ADDOPTS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTEST_PLUGINS",
    "PYTEST_XDIST_",
)


class Stopped(Exception):  # not an error: the user pressed Ctrl-C
    """The run is being stopped; nothing more is started."""


@dataclass(frozen=True)
class CompletedCommand:
    """How a command ended."""

    code: int
    seconds: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0 and not self.timed_out

    def explain(self, limit: float | None = None) -> str:
        """The end in words: "killed by SIGABRT", "exit status 2", "exceeded its limit of 60 s"."""
        if self.timed_out and limit is not None:
            return f"exceeded its limit of {limit:.0f} s"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit status {self.code}"


@dataclass(frozen=True)
class Running:
    """A command under its supervisor, which ends all of it once `hold` is closed."""

    process: subprocess.Popen[bytes]
    hold: BinaryIO

    def end(self) -> None:
        """End the command and everything that it started."""
        self.hold.close()
        self.process.wait()


def start(
    command: Sequence[str | Path],
    output: BinaryIO | None,
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
) -> Running:
    """Start a command in its own session; its output goes to a file, or where this process's."""
    alive, end = os.pipe()
    hold = os.fdopen(end, "wb")
    try:
        process = subprocess.Popen(
            [*SUPERVISE, str(alive), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            cwd=cwd,
            env={**inherited(), **(env or {})},
            pass_fds=[alive],
            start_new_session=True,
        )
    except BaseException:
        hold.close()
        raise
    finally:
        os.close(alive)
    return Running(process, hold)


def run_here(
    command: Sequence[str | Path],
    output: BinaryIO | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a command that prints here; all of it ends with this process, however that ends."""
    running = start(command, output, cwd=cwd or Path.cwd(), env=env)
    try:
        return running.process.wait()
    finally:
        running.end()


def inherited() -> dict[str, str]:
    """The environment without what would change a pytest that the tool starts.

    It runs what matrix.toml says, whatever a shell adds, and is no worker of a pytest-xdist that
    runs the tool: pytest-benchmark times nothing in one.
    """
    return {k: v for k, v in os.environ.items() if not k.startswith(PYTEST_VARIABLES)}


class Processes:
    """Starts commands, and can stop all of them at once; safe to share between threads."""

    def __init__(self) -> None:
        self._live: set[Running] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        limit: float | None,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        """Run a command in its own session, `limit` seconds at most if any; appends to `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("ab") as output:
            output.write(("$ " + " ".join(str(part) for part in command) + "\n").encode())
            output.flush()
            with self._lock:
                if self._stopped:
                    raise Stopped
                running = start(command, output, cwd=cwd, env=env)
                self._live.add(running)
            timed_out = False
            try:
                running.process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                with self._lock:
                    self._live.discard(running)
                running.end()
        if self._stopped:
            raise Stopped
        return CompletedCommand(running.process.returncode, time.monotonic() - started, timed_out)

    def stop(self) -> None:
        """Kill everything that runs, and let nothing more start."""
        with self._lock:
            self._stopped = True
            stopped, self._live = self._live, set()
        for running in stopped:
            running.end()


def reason_in(log: Path) -> str:
    """What the last command of a log gave as its error, else its last line."""
    text = read_end(log, LOG_END).decode(errors="replace").rpartition("\n$ ")[2]
    _, *lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    errors = [line for line in lines if REASON.search(line)]
    chosen = errors[:2] or lines[-1:]
    return "".join(f", {line[:LINE]}" for line in chosen) + f"; see {log.name}"
