"""Ends what a build has started once the process that builds is gone: `_jit_watch.py FD MARK`.

FD is the read end of a pipe whose other end the building process alone holds: it closes however
that process ends, by SIGKILL, too. ninja gives each compiler a process group of its own, so that no
signal to a group reaches them all; but each has the mark in its environment. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

VARIABLE = "LLTM_JIT_BUILD"


def marked(mark: str) -> list[int]:
    """The processes that a build has started."""
    entry, found = f"\0{VARIABLE}={mark}\0".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if entry in b"\0" + file.read():
                found.append(int(name))
    return found


def main() -> None:
    """Wait for the end of the building process, then end what it left."""
    pipe, mark = int(sys.argv[1]), sys.argv[2]
    os.read(pipe, 1)
    while left := marked(mark):  # one that is forked meanwhile is met in the next round
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
