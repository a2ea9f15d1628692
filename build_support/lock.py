"""One build of a tree at a time: the objects, ninja's files and what is packed share a folder."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout  # torch's own dependency

from build_support.variant import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ROOT / "build"
# One object, so that a command may hold it that another of this process runs.
LOCK = FileLock(FOLDER / "lltm.lock")


@contextmanager
def only_build() -> Iterator[None]:
    """Wait for the end of any other process's build of this tree, and keep others waiting."""
    try:
        FOLDER.mkdir(exist_ok=True)
        LOCK.acquire(blocking=False)
    except Timeout:
        print(f"another process builds in {FOLDER}; waiting for it", file=sys.stderr, flush=True)
        LOCK.acquire()
    except (OSError, NotImplementedError):  # a folder that is read-only, or knows no locks
        yield
        return
    try:
        yield
    finally:
        LOCK.release()
