"""Bugs planted for `faults --prove`: `fault_plants.py BUG SCRIPT ARGS...`, or `BUG -m MODULE`.

Each is a fault that torchproof does not survive; a name in BUGS is the kind that must find it.
Imports are inside, so that a plant loads only what it changes before the program starts.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def outlive() -> None:
    """A supervisor that supervises nothing: what it starts outlives whoever started it."""
    from torchproof.machine import processes

    exec_it = "import os, sys; os.execvp(sys.argv[2], sys.argv[2:])"
    processes.SUPERVISE = (sys.executable, "-c", exec_it)


def write_halves() -> None:
    """A row's result is written in two halves, some seconds apart."""
    from torchproof import files

    whole = files.write_atomically

    def write(path: Path, text: str) -> None:
        if path.parent.name == "rows":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text[: len(text) // 2], encoding="utf-8")
            time.sleep(3.0)
        whole(path, text)

    files.write_atomically = write


def raise_through(module: Any, name: str) -> None:
    """An error that a user can act on is a traceback."""
    call: Callable[..., Any] = getattr(module, name)

    def raising(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except Exception as error:
            raise RuntimeError(str(error)) from error

    setattr(module, name, raising)


def explain_no_disk() -> None:
    """A full disk ends the matrix in a traceback."""
    from torchproof.rows import scheduler

    raise_through(scheduler, "run")


def explain_no_network() -> None:
    """A command without a network ends in a traceback."""
    from torchproof import cli

    raise_through(cli, "command")


def lock_nothing() -> None:
    """Two runs in a folder do not see each other."""
    from torchproof import lock

    @contextlib.contextmanager
    def held(folder: Path) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").write_text("0", encoding="utf-8")
        yield

    lock.held = held


BUGS = {
    "a process that outlives": outlive,
    "a half that is believed": write_halves,
    "a full disk": explain_no_disk,
    "no network": explain_no_network,
    "a lock": lock_nothing,
}


def main() -> None:
    """Plant a bug, and run the program."""
    BUGS[sys.argv[1]]()
    if sys.argv[2] == "-m":
        sys.argv = sys.argv[3:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[2:]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
