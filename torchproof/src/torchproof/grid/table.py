"""A grid as text: for the terminal, and as Markdown."""

from rich import box
from rich.table import Table
from rich.text import Text

from torchproof.grid.crossload import Grid, Line
from torchproof.grid.trials import IMPORTS, LOADS, NOT_RUN, UNSAFE, UNSUPPORTED, WORKS, GridCell


def words(cell: GridCell) -> str:
    """A cell in a few words: what the package does, and its libraries where that differs."""
    package = cell.package
    if package.outcome == NOT_RUN:
        return NOT_RUN
    text = package.outcome
    if package.predicted in {UNSAFE, UNSUPPORTED}:
        text += f" ({package.predicted})"
    loaded = sum(library.outcome == LOADS for library in cell.libraries)
    if (package.outcome in {WORKS, IMPORTS}) != (loaded == len(cell.libraries)):
        text += f"; {loaded} of {len(cell.libraries)} libraries load"
    return text if cell.as_predicted else f"{text}; not as predicted"


def markdown(grid: Grid) -> str:
    """A line a wheel, a column a torch."""
    torches = [each.torch for each in grid.environments.values()]
    rows = [f"| wheel | {' | '.join(torches)} |", f"|---|{'---|' * len(torches)}"]
    for line in grid.lines:
        cells = (words(c) if c.as_predicted else f"**{words(c)}**" for c in line.cells)
        rows.append(f"| `{line.wheel.name}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def table(grid: Grid) -> Table:
    """The same for the terminal."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("wheel \\ torch", no_wrap=True)
    for each in grid.environments.values():
        shown.add_column(each.torch)
    for line in grid.lines:
        shown.add_row(line.wheel.name, *(Text(words(c), style=_style(c)) for c in line.cells))
    return shown


def details(line: Line) -> Text:
    """A wheel's cells, a sentence each, with the reason of what was not predicted."""
    text = Text()
    for cell in line.cells:
        text.append(f"{line.wheel.name} in torch {cell.torch}: {words(cell)}\n", _style(cell))
        for trial in cell.trials:
            if not trial.as_predicted or trial.outcome == NOT_RUN:
                what = getattr(trial, "name", "the package")
                text.append(f"  {what}: predicted {trial.predicted}, {trial.reason}\n")
                text.append(f"  found: {trial.outcome} {trial.message}\n")
    text.rstrip()
    return text


def _style(cell: GridCell) -> str:
    if not cell.run:
        return "yellow"
    return "green" if cell.as_predicted else "bold red"
