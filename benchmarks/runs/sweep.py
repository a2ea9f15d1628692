"""A sweep over sizes: where ours stands against eager, as heat maps and in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from matplotlib.colors import TwoSlopeNorm
from torchproof.report.page.plots import Plot, plot

from benchmarks.runs.figures import OURS
from benchmarks.runs.tables import DASH, Cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from benchmarks.runs.figures import Figure, Row, Run

# Powers of two at the ends of the colours; white is as fast as eager.
SLOWEST, FASTEST = -1.0, 3.0
COLOURS = "PuOr"
LINES_OF_AXES = 4


@dataclass(frozen=True)
class Map:
    """The rows of one op, dtype and kind of work.

    Attributes:
        title: the three.
        sizes: F x S of each column.
        batches: B of each line.
        speeds: of ours against eager, by batch and size.
    """

    title: str
    sizes: tuple[str, ...]
    batches: tuple[int, ...]
    speeds: dict[tuple[int, str], Figure]


def is_behind(figure: Figure) -> bool:
    """Slower than eager by more than the noise of the rounds."""
    return figure.median + figure.spread < 1.0


def speeds(run: Run) -> list[tuple[Row, Figure]]:
    """Each row with the speed of ours."""
    return [(row, entry.speed) for row in run.rows for entry in row.of_kind(OURS)]


def behind(run: Run) -> list[tuple[Row, Figure]]:
    """The rows in which eager is faster."""
    return [(row, figure) for row, figure in speeds(run) if is_behind(figure)]


def verdicts(run: Run) -> list[str]:
    """How many rows are behind eager, the slowest, and each that is behind."""
    found, late = speeds(run), behind(run)
    if not found:
        return ["none of ours took part"]
    row, worst = min(found, key=lambda each: each[1].median)
    head = (
        f"{len(found) - len(late)} of {len(found)} rows are not behind eager by more than the "
        f"noise; the slowest is {row.name}, {worst.median:.2f} times as fast as eager"
    )
    return [
        head,
        *(f"behind: {r.name}: {f.median:.2f} ±{f.spread:.2f}" for r, f in late),
    ]


def maps(run: Run) -> list[Map]:
    """A heat map for each op, dtype and kind of work."""
    groups: dict[tuple[str, str, str], dict[tuple[int, str], Figure]] = {}
    for row, figure in speeds(run):
        batch, features, state = row.case.split("x")[-3:]
        group = groups.setdefault((row.op, row.dtype, row.work), {})
        group[int(batch), f"{features} x {state}"] = figure
    return [
        Map(
            f"{op}, {dtype}, {work}",
            tuple(dict.fromkeys(size for _, size in found)),
            tuple(sorted({batch for batch, _ in found})),
            found,
        )
        for (op, dtype, work), found in groups.items()
    ]


def lines(of: Map) -> list[tuple[int, list[Cell]]]:
    """The same as a table: a line a batch, a cell a size."""
    return [
        (batch, [_cell(of.speeds.get((batch, size))) for size in of.sizes]) for batch in of.batches
    ]


def _cell(figure: Figure | None) -> Cell:
    if figure is None:
        return Cell(DASH)
    return Cell(f"{figure.median:.2f}", "behind" if is_behind(figure) else "")


def plot_of(of: Map) -> Plot:
    """The heat map, every figure written in its square."""
    late = sum(is_behind(figure) for figure in of.speeds.values())
    words = (
        f"{of.title}, one thread: times as fast as eager by batch and F x S; "
        f"{late} of {len(of.speeds)} behind by more than the noise."
    )
    return plot(_draw(of), len(of.batches) + LINES_OF_AXES, words)


def _draw(of: Map) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        nothing = float("nan")
        shades = [
            [
                log2(of.speeds[batch, size].median) if (batch, size) in of.speeds else nothing
                for size in of.sizes
            ]
            for batch in of.batches
        ]
        norm = TwoSlopeNorm(0.0, SLOWEST, FASTEST)
        axes.imshow(shades, cmap=COLOURS, norm=norm, aspect="auto")
        for y, (_, cells) in enumerate(lines(of)):
            for x, cell in enumerate(cells):
                weight = "bold" if cell.mark else "normal"
                axes.text(x, y, cell.text, ha="center", va="center", weight=weight, fontsize=7)
        axes.set_xticks(range(len(of.sizes)), of.sizes, rotation=45, ha="right")
        axes.set_yticks(range(len(of.batches)), [str(batch) for batch in of.batches])
        axes.set_xlabel("F x S")
        axes.set_ylabel("batch")
        axes.grid(visible=False)

    return draw
