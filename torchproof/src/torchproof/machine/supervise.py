"""Runs a command and ends every process that it leaves behind, also when its starter is killed.

    python supervise.py FD COMMAND...

FD is the read end of a pipe whose other end the starter alone holds: it closes however the starter
ends, by SIGKILL, too. A compiler is no child of the command's, and ninja gives each a process group
of its own, so that neither a signal to the group nor one at a parent's death reaches it; but every
orphan becomes a child of this process, a subreaper.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND = 127


def descendants() -> list[int]:
    """Every process below this one; none where there is no /proc, as on macOS."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def end_all() -> None:
    """Kill and await what is left; a process that is forked meanwhile is met in the next round."""
    while True:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def await_end(child: int, pipe: int) -> int | None:
    """The status of the command; None when the starter ended, or let go of it, before."""
    awake, wake = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        while True:  # children may have ended before there was a handler
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == child:
                return status
            if pid == 0:
                break
        ready, _, _ = select.select([pipe, awake], [], [])
        if pipe in ready:
            return None
        os.read(awake, 4096)


def end_as(status: int) -> None:
    """End as the command did, by the same signal without a core of its own."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def main() -> None:
    """Run the command line."""
    pipe, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(pipe, False)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        child = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", flush=True)
        os._exit(NOT_FOUND)
    status = await_end(child, pipe)
    end_all()
    end_as(signal.SIGKILL if status is None else status)


if __name__ == "__main__":
    main()
