"""Run by the interpreter of an environment: ``probe.py JSON``.

The JSON is an object: `libraries`, a list of paths, each of which the loader is given and
`by_loader`, a program, then uses; `package`, a program that imports it, and `smoke`, one that uses
it; `report`, the file to write, as what is imported may print anything. Each is tried in a fork of
this process, which has imported torch and nothing else. The report is JSON: a list of outcome and
message a library, and those of the package.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

Found = tuple[str, str]


def describe(error: BaseException) -> str:
    """The kind of an error, and its message."""
    return f"{type(error).__name__}: {error}"


def load(library: str, program: str) -> Found:
    """Give a library to the loader, as if no package judged it first, and use it."""
    try:
        torch.ops.load_library(library)
    except OSError as error:
        return "refuses", str(error.__cause__ or error)  # torch puts its own sentence around it
    return use(program, "loads")


def import_and_use(package: str, smoke: str) -> Found:
    """As a user does."""
    try:
        run(package)
    except (Exception, SystemExit) as error:
        return "refuses", describe(error)
    return use(smoke, "works") if smoke else ("imports", "")


def use(program: str, right: str) -> Found:
    """Run what raises where the library computes something wrong."""
    try:
        run(program)
    except (Exception, SystemExit) as error:  # whatever a wrong binary raises is the finding
        return "wrong", describe(error)
    return right, ""


def run(program: str) -> None:
    """Run a program of the user's."""
    exec(program, {"__name__": "__main__"})  # nosec B102  # it is the user's own


def in_a_fork(work: Callable[[], Found]) -> Found:
    """What it found; a signal that ends the process is a finding, too."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(work()))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        return "aborts", f"killed by {signal.Signals(-code).name}"
    if code or not text:
        return "aborts", f"exit status {code}"
    outcome, message = json.loads(text)
    return outcome, message


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    found = {
        "libraries": [
            in_a_fork(partial(load, path, given["by_loader"])) for path in given["libraries"]
        ],
        "package": in_a_fork(partial(import_and_use, given["package"], given["smoke"])),
    }
    Path(given["report"]).write_text(json.dumps(found), encoding="utf-8")
