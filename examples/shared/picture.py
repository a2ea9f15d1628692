"""How the examples draw: SVG files, the same again from the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BAR = 0.8
"""Of the room of a row, what its bars take."""


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Axes]:
    """Axes to draw on, ``size`` inches wide and high; what was drawn is in ``path`` afterwards."""
    # Without these two, ids and a date would make every file another one.
    with mpl.rc_context({"svg.hashsalt": "lltm"}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots()
        figure.savefig(path, metadata={"Date": None})


def bars(rows: Mapping[str, Mapping[str, float]], label: str, path: Path) -> None:
    """Draw a table as bars: a row's values one below the other, each column in a colour of its own.

    Args:
        rows: name of the row -> name of the column -> value; a value that is not there is no bar.
        label: what the values are.
        path: the file to write.
    """
    columns = list(dict.fromkeys(column for values in rows.values() for column in values))
    height = BAR / len(columns)
    with picture(path, (8, (0.16 * len(columns) + 0.12) * len(rows) + 1)) as axes:
        for at, column in enumerate(columns):
            here = {place: row[column] for place, row in enumerate(rows.values()) if column in row}
            places = [place + height * (at - (len(columns) - 1) / 2) for place in here]
            drawn = axes.barh(places, list(here.values()), height, label=column)
            axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize="small")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
        axes.margins(x=0.1, y=0.02)
        axes.set_xlabel(label)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(columns))
