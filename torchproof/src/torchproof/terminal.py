"""The console that every program of torchproof prints on."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def console(**options: Any) -> Console:
    """A console that prints text as it is: failure messages and ids of tests have brackets."""
    return Console(markup=False, emoji=False, highlight=False, **options)
