"""The README's plot: the speed of sequences on every recorded processor.

Written as SVG text, not by matplotlib, so that the same records give the same bytes everywhere and
the committed file can be compared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from html import escape
from math import log10
from typing import TYPE_CHECKING

from benchmarks.runs.figures import LSTM, OTHER, OURS, SCALED_LSTM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.runs.figures import Row, Run

WIDTH, LEFT, RIGHT, LINE, TOP, BOTTOM = 760, 190, 24, 22, 58, 48
TICKS = tuple(float(f"{digit}e{power}") for power in range(-3, 5) for digit in (1, 2, 3, 5))
ALWAYS = (0.5, 10.0)
"""Speeds that the axis has, whatever was measured."""
WORKS = ("forward+backward", "inference")
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


@dataclass(frozen=True)
class Look:
    """A competitor's label, colour (Okabe and Ito's) and shape."""

    label: str
    colour: str
    shape: str


LOOKS = {
    "stable": Look("lltm", "#0072b2", '<circle cx="{x}" cy="{y}" r="6" fill="{colour}"/>'),
    "lstm": Look(
        "nn.LSTM", "#009e73", '<path d="M{x} {y}m-6 5h12l-6 -11z" fill="{colour}" opacity="0.9"/>'
    ),
    "jax": Look(
        "JAX", "#d55e00", '<path d="M{x} {y}m0 -6l6 6l-6 6l-6 -6z" fill="{colour}" opacity="0.9"/>'
    ),
    "onnxruntime": Look(
        "ONNX Runtime", "#7b4fa3", '<path d="M{x} {y}m-2 -6h4v12h-4z" fill="{colour}"/>'
    ),
    OTHER: Look(
        "fastest other in torch",
        "#8a8f98",
        '<path d="M{x} {y}m-5 -5h10v10h-10z" fill="{colour}" opacity="0.9"/>',
    ),
}


@dataclass(frozen=True)
class Axis:
    """Of speeds, as far as ``ticks`` reach."""

    ticks: tuple[float, ...]

    @classmethod
    def of(cls, speeds: Iterable[float]) -> Axis:
        """From the last tick at or below all speeds to the first at or above them."""
        every = (*ALWAYS, *speeds)
        first = bisect_right(TICKS, min(every)) - 1
        last = bisect_left(TICKS, max(every))
        return cls(TICKS[first : last + 1])

    def x(self, speed: float) -> float:
        lowest, highest = self.ticks[0], self.ticks[-1]
        share = log10(speed / lowest) / log10(highest / lowest)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def drawn(self, bottom: int) -> Iterator[str]:
        for tick in self.ticks:
            x, colour = self.x(tick), "#1f2933" if tick == 1 else "#d5d9de"
            yield f'<path d="M{x} {TOP - 14}V{bottom}" stroke="{colour}" stroke-width="1"/>'
            yield _text(x - 6, bottom + 16, f"{tick:g}", "#52606d")
        yield _text(LEFT, bottom + 36, "times as fast as eager PyTorch (1 is equal)", "#52606d")


def svg(runs: Sequence[Run]) -> str:
    """A line a sequence, kind of work and processor, a mark a competitor."""
    lines = [(run, work, rows) for run in runs for work in WORKS if (rows := _rows(run, work))]
    axis = Axis.of(speed for _, _, rows in lines for row in rows for speed in _speeds(row).values())
    count = sum(len(rows) + 1 for _, _, rows in lines)
    height = TOP + count * LINE + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        "<title>Sequences, float32, one thread: times as fast as eager</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
        *axis.drawn(height - BOTTOM),
    ]
    y = TOP
    for run, work, rows in lines:
        age = "" if run.current else " (older kernels)"
        heading = f"{run.processor.title}{age}, {work}"
        parts.append(_text(12, y + 15, heading, "#1f2933", weight=600))
        for row in rows:
            y += LINE
            parts.append(_text(24, y + 15, row.case, "#1f2933"))
            parts += _marks(row, axis, y + 11)
        y += LINE
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows(run: Run, work: str) -> list[Row]:
    return [
        row
        for row in run.rows
        if (row.op, row.dtype, row.threads, row.work) == ("sequence", "float32", 1, work)
    ]


def _speeds(row: Row) -> dict[str, float]:
    """By label; of several of one the fastest."""
    speeds = {OTHER: 1.0}
    for entry in row.of_kind(OTHER, LSTM, OURS):
        name = entry.name.partition(" ")[0] if entry.name != SCALED_LSTM else ""
        label = name if name in LOOKS else OTHER if entry.kind == OTHER else ""
        if label:
            speeds[label] = max(speeds.get(label, 0.0), entry.speed.median)
    return speeds


def _marks(row: Row, axis: Axis, y: float) -> Iterator[str]:
    """Ours last, on top."""
    speeds = _speeds(row)
    for name, look in reversed(LOOKS.items()):
        if name in speeds:
            mark = look.shape.format(x=axis.x(speeds[name]), y=y, colour=look.colour)
            shown = f"{look.label}, {row.case}: {speeds[name]:.2f}"
            yield f"<g><title>{escape(shown)}</title>{mark}</g>"


def _legend() -> Iterator[str]:
    x = 12
    for look in LOOKS.values():
        yield look.shape.format(x=x + 6, y=20, colour=look.colour)
        yield _text(x + 18, 25, look.label, "#1f2933")
        x += 40 + 8 * len(look.label)


def _text(x: float, y: float, text: str, colour: str, *, weight: int = 400) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" font-weight="{weight}">{escape(text)}</text>'
