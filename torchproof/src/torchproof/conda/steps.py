"""What is going on: a live line in a terminal, one line a step elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text


class Steps:
    """Reports each step when it begins and when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """The time in which steps are shown."""
        with self._live:
            yield

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One step."""
        task = self._live.add_task(name, total=None)
        begun = time.monotonic()
        if not self._console.is_terminal:
            self.say(f"{name} ...")
        try:
            yield
        finally:
            self._live.remove_task(task)
        self.say(f"{name}: {time.monotonic() - begun:.1f} s")

    def say(self, text: str, style: str = "") -> None:
        """A line that stays, with the time since the start."""
        at = int(time.monotonic() - self._started)
        clock = (f"{at // 60:2}:{at % 60:02} ", "dim")
        self._console.print(Text.assemble(clock, (text, style)))
