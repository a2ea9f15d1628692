"""Ends what a build has started once it is over: `_jit_watch.py MARK FOLDER`.

Its input is a pipe from the building process, which writes to it after the build: it closes however
that process ends, by SIGKILL, too. ninja gives each compiler a process group of its own, so that no
signal to a group reaches them all; but each has the mark in its environment, and works in the
folder, which is empty where the mark is given to no other process. Linux only.
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
SETTLED_S = 0.2
"""For how long nothing may be found: one that is about to exec still has its parent's environment,
and what starts it, such as posix_spawn, may have returned."""
ENVIRONMENT = slice(47, 49)
"""Of the words after the name in /proc/PID/stat: where it begins and ends, 0 before it is there."""


def is_marked(pid: str, entry: bytes, folder: str) -> bool | None:
    """Whether a build has started this process; ``None`` while exec has yet to lay that out."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        environment = file.read()
    if environment:
        marked = entry in b"\0" + environment
        return marked and folder in ("", os.readlink(f"/proc/{pid}/cwd"))
    with open(f"/proc/{pid}/stat", "rb") as file:
        begin, end = map(int, file.read().rpartition(b")")[2].split()[ENVIRONMENT])
    if begin == end != 0:
        return False  # it was given none
    os.readlink(f"/proc/{pid}/exe")  # OSError of one that has ended, and of a thread of the kernel
    return None


def end_all(entry: bytes, folder: str) -> bool:
    """End what a build has started; whether there may be more of it, such as a child forked now."""
    more = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            marked = is_marked(pid, entry, folder)
            more |= marked is not False
            if marked:
                os.kill(int(pid), signal.SIGKILL)
    return more


def main() -> None:
    """Wait for the end of the building process, then end what it left."""
    os.read(sys.stdin.fileno(), 1)
    mark, folder = sys.argv[1:]
    entry = f"\0{VARIABLE}={mark}\0".encode()
    now = time.monotonic()
    settled, given_up = now + SETTLED_S, now + PATIENCE_S
    while time.monotonic() < min(settled, given_up):
        if end_all(entry, folder):
            settled = time.monotonic() + SETTLED_S
        time.sleep(0.01)


if __name__ == "__main__":
    main()
