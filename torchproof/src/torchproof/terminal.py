"""The console that every program of torchproof prints on."""

import os
from collections.abc import Iterable
from typing import Any, NoReturn

from rich import box
from rich.console import Console
from rich.table import Table

from torchproof.errors import explain_error
from torchproof.interrupts import BROKEN_PIPE

# Elsewhere than in a terminal rich takes 80 columns, and cuts off what is in a wider table's.
LOG_COLUMNS = 160


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """End as one that prints without rich; its own exit code, 1, is that of a failed row."""
        try:
            super().on_broken_pipe()
        finally:
            raise SystemExit(BROKEN_PIPE)


def console(*, wide: bool = False, **options: Any) -> Console:
    """A console that prints text as it is: failure messages and ids of tests have brackets.

    With `wide` it has room for tables where it is no terminal, unless COLUMNS says how much.
    """
    made = _Console(markup=False, emoji=False, highlight=False, **options)
    if wide and not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = LOG_COLUMNS
    return made


def print_error(console: Console, error: object) -> None:
    """One line, however long, so that a search in a log finds the whole sentence."""
    console.print(f"error: {explain_error(error)}", style="red", soft_wrap=True)


def table(*fixed: str, folded: Iterable[str] = (), **options: Any) -> Table:
    """A table of columns that keep their width, then of those that fold where there is no room."""
    made = Table(**{"box": box.SIMPLE_HEAD, "pad_edge": False, **options})
    for column in fixed:
        made.add_column(column, no_wrap=True)
    for column in folded:
        made.add_column(column, overflow="fold")
    return made
