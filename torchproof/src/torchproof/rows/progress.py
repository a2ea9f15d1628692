"""What is going on: live lines in a terminal, one line an event elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from torchproof.rows.results import FAILED, NOT_RUN, PASSED, Result

STYLES = {PASSED: "green", FAILED: "bold red", NOT_RUN: "yellow"}


class Progress:
    """A bar over all rows and a line for each row under way; safe to share between threads.

    Elsewhere than in a terminal a row that is at its tests prints a line every `quiet` seconds.
    """

    def __init__(self, console: Console, *, quiet: float = 300.0) -> None:
        self._console = console
        self._quiet = quiet
        self._printed: dict[str, float] = {}
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[phase]}", style="cyan"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._lines: dict[str, TaskID] = {}
        self._all: TaskID | None = None
        self._started = time.monotonic()

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def start(self, rows: int, *, kept: int) -> None:
        """This many rows are about to run; `kept` more hold from an earlier run."""
        if kept:
            self._console.print(f"{kept} row{'s' if kept > 1 else ''} proven before, kept")
        self._all = self._bars.add_task("rows", total=rows, phase="")

    def phase(self, name: str, phase: str) -> None:
        """Row `name` enters a phase."""
        if name not in self._lines:
            self._lines[name] = self._bars.add_task(name, total=7, phase=phase)
        else:
            self._bars.update(self._lines[name], advance=1, phase=phase)
        if not self._console.is_terminal:
            self._print(name, phase)

    def share(self, name: str, percent: int) -> None:
        """Of the tests of row `name` this many are done."""
        if name in self._lines:
            self._bars.update(self._lines[name], phase=f"tests {percent} %")
        silent = time.monotonic() - self._printed.get(name, self._started)
        if not self._console.is_terminal and silent >= self._quiet:
            self._print(name, f"tests {percent} %")

    def _print(self, name: str, at: str) -> None:
        self._printed[name] = time.monotonic()
        self._console.print(f"{self._elapsed()} {name}: {at}")

    def finished(self, result: Result) -> None:
        """A row has its result."""
        line = self._lines.pop(result.id, None)
        if line is not None:
            self._bars.remove_task(line)
        if self._all is not None:
            self._bars.advance(self._all)
        status = Text(result.status, style=STYLES[result.status])
        reason = f": {result.reason}" if result.reason else ""
        shown = Text.assemble(f"{self._elapsed()} {result.id}: ", status, reason)
        self._console.print(shown, soft_wrap=True)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes:2d}:{seconds:02d}"
