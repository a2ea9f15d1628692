"""One run at a time in a folder: two would take each other's half-made files for their own."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchproof.errors import TorchproofError


class BusyError(TorchproofError):
    """Another run is at work in the folder."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder; the kernel lets go of it when this process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise BusyError(
                f"another run, process {file.read() or 'unknown'}, is at work in {folder}: "
                "wait for it, or end it"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        # The tree of a project that does not ignore it stays as it was committed, to be recorded.
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        yield
