"""The plots: per op, dtype and thread count, how many times faster than eager everyone is."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from torchproof.report.page.plots import FAINT, Plot, plot

from benchmarks.runs.figures import BLAS, EAGER, FLOOR, LSTM, MODULES, OTHER, OURS, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes

    from benchmarks.runs.figures import Row, Run

NARROW_INCHES = 6
# The legend's height, in rows of the plot.
LEGEND_LINES = 5
# Okabe and Ito's colours, as in the matrix's plots; marker shapes tell them apart without colour.
LOOKS = {
    "stable": ("#0072b2", "o"),
    "native": ("#56b4e9", "v"),
    "aten": ("#e69f00", "s"),
    "premultiplied": ("#8a8f98", "D"),
    "torchscript": ("#cc79a7", "P"),
    "compile": ("#d55e00", "X"),
    "jax 1": ("#8a6d3b", "<"),
    "jax 4": ("#8a6d3b", ">"),
    "onnxruntime": ("#7b4fa3", "p"),
    "lstm": ("#009e73", "2"),
    **dict.fromkeys(MODULES.values(), ("#009e73", "2")),
    "lltm.cells": ("#0072b2", "o"),
    "lltm.LLTMSequence": ("#56b4e9", "v"),
    "stream": ("#0072b2", "*"),
    "max-autotune": ("#d55e00", "*"),
    "tutorial cuda": ("#e69f00", "h"),
    "lstm x 3/4": ("#009e73", "^"),
    "flashrnn x 3/4": ("#009e73", "<"),
    "graphed": ("#0072b2", "d"),
    BLAS: ("#1f2933", "|"),
}


def speed(run: Run) -> Iterator[tuple[str, Plot]]:
    """A plot for each op, dtype and thread count, and its name."""

    def key(row: Row) -> tuple[str, str, int]:
        return row.op, row.dtype, row.threads

    for (op, dtype, threads), found in groupby(sorted(run.rows, key=key), key):
        rows = tuple(found)
        ours = [entry.speed.median for row in rows for entry in row.of_kind(OURS)]
        of = "" if run.on_gpu else f", {threads} thread{'s' if threads > 1 else ''}"
        words = (
            f"{op.capitalize()}, {dtype}{of}: times "
            f"faster than eager in the same rounds; ours from {min(ours):.2f} to {max(ours):.2f}."
            if ours
            else f"{op.capitalize()}, {dtype}: none of ours took part."
        )
        yield f"{op}-{dtype}-{threads}", plot(_draw(rows), len(rows) + LEGEND_LINES, words)


def _draw(rows: tuple[Row, ...]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        figure = axes.get_figure(root=True)
        assert figure is not None
        narrow = figure.get_figwidth() < NARROW_INCHES
        drawn = set()
        for at, row in enumerate(rows):
            for entry in row.of_kind(OTHER, LSTM, FLOOR, OURS, STREAM):
                if entry.name == EAGER or entry.name not in LOOKS:
                    continue
                colour, marker = LOOKS[entry.name]
                axes.errorbar(
                    entry.speed.median,
                    at,
                    xerr=entry.speed.spread,
                    color=colour,
                    marker=marker,
                    markersize=12 if entry.kind == FLOOR else None,
                    markeredgecolor=colour if entry.kind == FLOOR else None,
                    markeredgewidth=2 if entry.kind == FLOOR else None,
                    linestyle="none",
                    elinewidth=1,
                    label=None if entry.name in drawn else entry.name,
                )
                drawn.add(entry.name)
        axes.axvline(1.0, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        separator = "\n" if narrow else " "
        axes.set_yticks(range(len(rows)), [f"{row.case}{separator}{row.work}" for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("times faster than eager (1 is equal)")
        axes.grid(visible=True, axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=2 if narrow else 4)

    return draw
