"""The console that every program of torchproof prints on."""

from typing import Any

from rich.console import Console


def console(**options: Any) -> Console:
    """A console that prints text as it is: failure messages and ids of tests have brackets."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def print_error(console: Console, error: object) -> None:
    """One line, however long: what reads a log finds the sentence whole."""
    console.print(f"error: {error}", style="red", soft_wrap=True)
