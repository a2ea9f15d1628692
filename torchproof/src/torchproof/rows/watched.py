"""How far a row's tests are, from the log that pytest writes."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchproof.files import read_end

# At the end of pytest's lines: "[ 43%]".
SHARE = re.compile(rb"\[ *(\d+)%\]")
TAIL_BYTES = 4096


@contextmanager
def watched(log: Path, tell: Callable[[int], None], *, every: float = 5.0) -> Iterator[None]:
    """Look into pytest's log every few seconds, and tell the percent of the tests that are done."""
    ended = threading.Event()

    def watch() -> None:
        told = 0
        while not ended.wait(every):
            share = _share_in(log)
            if share > told:
                told = share
                tell(share)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _share_in(log: Path) -> int:
    try:
        shares = SHARE.findall(read_end(log, TAIL_BYTES))
    except OSError:  # what became of the log is for the row to say
        return 0
    return int(shares[-1]) if shares else 0
