"""The directive ``flow``: one flow of flows.toml as a drawing, its boxes in order."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import tomllib
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DATA = Path(__file__).with_name("flows.toml")
REPOSITORY = Path(__file__).parents[2]
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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("flow", Flow)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
