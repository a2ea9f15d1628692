"""Ctrl-C is one line, from the first import on: a program imports this before what is slow.

Where something is to be kept or ended, the program catches KeyboardInterrupt itself.
"""

import sys
from types import TracebackType

# As a shell reports a program that SIGINT, or SIGPIPE, has ended.
INTERRUPTED = 130
BROKEN_PIPE = 141
_others = sys.excepthook


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        _others(kind, error, trace)


sys.excepthook = _explain
