"""A grid as a picture: SVG, as text, so that a new run shows as a small difference."""

from html import escape

from torchproof.grid.crossload import Grid
from torchproof.grid.table import words
from torchproof.grid.trials import ABORTS, IMPORTS, NOT_RUN, REFUSES, WORKS, WRONG, GridCell

# Okabe and Ito's colours, which colour-blind readers tell apart, and a word beside each.
COLOURS = {
    WORKS: "#56b4e9",
    IMPORTS: "#b5dcf3",
    REFUSES: "#e69f00",
    WRONG: "#d55e00",
    ABORTS: "#cc79a7",
    NOT_RUN: "#d0d5db",
}
NAME, WIDTH, HEIGHT, TOP = 190, 120, 30, 26
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'font-family="system-ui, sans-serif" font-size="12" role="img">\n<title>{title}</title>\n'
    '<rect width="100%" height="100%" fill="white"/>\n'
)


def svg(grid: Grid, title: str) -> str:
    """A row a wheel, a column a torch; a cell's tooltip has its words."""
    torches = [each.torch for each in grid.environments.values()]
    width, height = NAME + WIDTH * len(torches), TOP + HEIGHT * len(grid.lines) + 4
    parts = [HEAD.format(width=width, height=height, title=escape(title))]
    parts += [_text(NAME + WIDTH * (at + 0.5), 17, each) for at, each in enumerate(torches)]
    for row, line in enumerate(grid.lines):
        y = TOP + HEIGHT * row
        parts.append(_text(NAME - 8, y + 19, line.wheel.name, "end"))
        parts += [_cell(NAME + WIDTH * at, y, cell) for at, cell in enumerate(line.cells)]
    return "".join(parts) + "</svg>\n"


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>\n'


def _cell(x: float, y: float, cell: GridCell) -> str:
    edge = "none" if cell.as_predicted else "#c00"
    return (
        f'<g><title>{escape(words(cell))}</title><rect x="{x + 2:g}" y="{y:g}" '
        f'width="{WIDTH - 4}" height="{HEIGHT - 4}" rx="3" fill="{COLOURS[cell.package.outcome]}" '
        f'stroke="{edge}" stroke-width="3"/>\n'
        f"{_text(x + WIDTH / 2, y + 18, cell.package.outcome)}</g>\n"
    )
