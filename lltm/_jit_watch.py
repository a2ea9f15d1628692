"""Ends what a build has started once the process that builds is gone: `_jit_watch.py MARK`.

Its input is a pipe from the building process, which writes to it after the build: it closes however
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
PATIENCE_S = 10.0
"""For what does not end: a process that hangs in the kernel, or never has an environment there."""
ENV_END = 48
"""Of the words after the name in /proc/PID/stat: where its environment ends, 0 without one."""


def is_marked(pid: str, entry: bytes) -> bool | None:
    """Whether a build has started this process; ``None`` while exec has yet to lay that out."""
    # In this order: what is laid out between the two is found then.
    with open(f"/proc/{pid}/stat", "rb") as file:
        laid_out = int(file.read().rpartition(b")")[2].split()[ENV_END])
    with open(f"/proc/{pid}/environ", "rb") as file:
        environment = file.read()
    if laid_out or environment:
        return entry in b"\0" + environment
    os.readlink(f"/proc/{pid}/exe")  # OSError of one that has ended, and of a thread of the kernel
    return None


def end_all(entry: bytes) -> bool:
    """End what a build has started; whether there may be more of it, such as a child forked now."""
    more = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            marked = is_marked(pid, entry)
            more |= marked is not False
            if marked:
                os.kill(int(pid), signal.SIGKILL)
    return more


def main() -> None:
    """Wait for the end of the building process, then end what it left."""
    os.read(sys.stdin.fileno(), 1)
    entry, end = f"\0{VARIABLE}={sys.argv[1]}\0".encode(), time.monotonic() + PATIENCE_S
    while end_all(entry) and time.monotonic() < end:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
