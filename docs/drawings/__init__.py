"""Directives whose drawings are made of committed data.

``flow``: one flow of flows.toml, its boxes in order. ``report``: the matrix's report page of what
docs/proofs has recorded. ``errors``: its plot of errors against the oracle. ``gpu-steps``: the
training steps of cuda.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import tomllib
from docutils import nodes
from matplotlib.ticker import FuncFormatter
from sphinx.util.docutils import SphinxDirective
from torchproof.report import page, proofs
from torchproof.report.page import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sphinx.application import Sphinx
    from torchproof.rows.results import Result

DATA = Path(__file__).with_name("flows.toml")
GPU_STEPS = Path(__file__).parents[1] / "cuda.json"
REPOSITORY = Path(__file__).parents[2]
REPORT = "report.html"
COLUMNS = 4
WIDTH, HEIGHT, GAP = 190, 74, 30
"""Of a box and between two, in pixels."""


@dataclass(frozen=True)
class Step:
    """One box."""

    name: str
    what: str
    where: str

    def at(self, index: int) -> str:
        """The box as SVG; every second line runs from right to left, so that arrows are short."""
        x, y = _corner(index)
        middle = x + WIDTH / 2
        return (
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" class="box"/>'
            f'<text x="{middle}" y="{y + 22}" class="name">{escape(self.name)}</text>'
            f'<text x="{middle}" y="{y + 42}">{escape(self.what)}</text>'
            f'<text x="{middle}" y="{y + 61}" class="where">{escape(_short(self.where))}</text>'
        )


def _short(path: str) -> str:
    return path.replace("torchproof/src/torchproof/", "torchproof/")


def _corner(index: int) -> tuple[int, int]:
    line, column = divmod(index, COLUMNS)
    if line % 2:
        column = COLUMNS - 1 - column
    return 1 + column * (WIDTH + GAP), 1 + line * (HEIGHT + GAP)


def _arrow(index: int) -> str:
    """From the box before to this one."""
    (x0, y0), (x1, y1) = _corner(index - 1), _corner(index)
    if y1 > y0:
        start, end = (x0 + WIDTH / 2, y0 + HEIGHT), (x1 + WIDTH / 2, y1 - 6)
    elif x1 > x0:
        start, end = (x0 + WIDTH, y0 + HEIGHT / 2), (x1 - 6, y1 + HEIGHT / 2)
    else:
        start, end = (x0, y0 + HEIGHT / 2), (x1 + WIDTH + 6, y1 + HEIGHT / 2)
    return f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" class="arrow"/>'


def draw(name: str) -> str:
    """The flow of that name as an SVG document.

    Raises:
        ValueError: there is no such flow, or a step's path is not in the repository.
    """
    flows = tomllib.loads(DATA.read_text(encoding="utf-8"))
    if name not in flows:
        raise ValueError(f"{DATA.name} has the flows {', '.join(flows)}, got {name!r}")
    steps = [Step(**step) for step in flows[name]["steps"]]
    for step in steps:
        if not (REPOSITORY / step.where).exists():
            raise ValueError(f"{DATA.name}: {step.where} of the flow {name!r} does not exist")
    lines = -(-len(steps) // COLUMNS)
    width = COLUMNS * (WIDTH + GAP) - GAP + 2
    height = lines * (HEIGHT + GAP) - GAP + 2
    boxes = "".join(step.at(index) for index, step in enumerate(steps))
    arrows = "".join(_arrow(index) for index in range(1, len(steps)))
    return (
        f'<svg class="flow" role="img" aria-label="{escape(flows[name]["title"])}" '
        f'viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" class="head"/></marker></defs>'
        f"{boxes}{arrows}</svg>"
    )


class Flow(SphinxDirective):
    """``:::{flow} NAME``."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """The drawing; a change of the data makes the page again."""
        self.env.note_dependency(str(DATA))
        return [nodes.raw("", draw(self.arguments[0]), format="html")]


def recorded() -> list[Result]:
    """The rows that have passed, on every processor."""
    return [row for record in proofs.read_all() for row in proofs.results(record)]


class Report(SphinxDirective):
    """``:::{report}``."""

    def run(self) -> list[nodes.Node]:
        """The page in a frame."""
        self.env.note_dependency(str(proofs.FOLDER))
        frame = (
            f'<iframe class="report" src="{REPORT}" title="What is proven where" loading="lazy">'
            f'</iframe><p><a href="{REPORT}">The page by itself</a></p>'
        )
        return [nodes.raw("", frame, format="html")]


def _image(plot: plots.Plot) -> nodes.raw:
    figure = f'<img class="errors" src="{plot.wide}" alt="{escape(plot.words)}">'
    return nodes.raw("", figure, format="html")


class Errors(SphinxDirective):
    """``:::{errors}``."""

    def run(self) -> list[nodes.Node]:
        """The plot and what it shows in words; a sentence where no record has errors."""
        self.env.note_dependency(str(proofs.FOLDER))
        plot = plots.oracle(recorded())
        if plot is None:
            return [nodes.paragraph("", "No record has errors yet.")]
        return [_image(plot), nodes.paragraph("", plot.words)]


def gpu_steps() -> plots.Plot:
    """Each time of a training step that cuda.json has, on a line for each size and dtype."""
    rows = json.loads(GPU_STEPS.read_text(encoding="utf-8"))["rows"]
    lines = list(dict.fromkeys(f"{row['case']} {row['dtype']}" for row in rows))
    looks = {"lltm": ("o", plots.COLOURS["fused"]), "nn.LSTM": ("^", plots.COLOURS["cuda"])}

    def draw(axes: Axes) -> None:
        for who, (marker, colour) in looks.items():
            points = [
                (time, lines.index(f"{row['case']} {row['dtype']}"))
                for row in rows
                if row["who"] == who
                for time in row["milliseconds"]
            ]
            axes.plot(*zip(*points, strict=True), marker, color=colour, alpha=0.75, label=who)
        axes.set_xscale("log")
        axes.set_yticks(range(len(lines)), lines)
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds of a training step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(visible=True, axis="x")
        axes.legend()

    return plots.plot(draw, len(lines), "A training step on the GPU, by lltm and by nn.LSTM.")


class GpuSteps(SphinxDirective):
    """``:::{gpu-steps}``."""

    def run(self) -> list[nodes.Node]:
        """The plot."""
        self.env.note_dependency(str(GPU_STEPS))
        return [_image(gpu_steps())]


def write_report(app: Sphinx, failure: Exception | None) -> None:
    """The page of the directive ``report``."""
    if failure is None and app.builder.format == "html":
        html = page.render(Path(app.outdir), "recorded", recorded(), proofs.read_all())
        Path(app.outdir, REPORT).write_text(html, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("flow", Flow)
    app.add_directive("report", Report)
    app.add_directive("errors", Errors)
    app.add_directive("gpu-steps", GpuSteps)
    app.connect("build-finished", write_report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
