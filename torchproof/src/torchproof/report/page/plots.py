"""The plots, drawn by matplotlib as SVG: once for a wide page and once for a narrow one.

Matplotlib, because it draws log axes and categories without a browser or JavaScript, and its SVG
stands on its own. Each plot enters the page as an image: no style leaks in or out.
"""

import base64
import io
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from torchproof.rows.results import Result

FAINT = "#52606d"
# Okabe and Ito's colours, told apart by colour-blind readers too.
COLOURS = {
    "fused": "#0072b2",
    "aten": "#e69f00",
    "reference": "#8a8f98",
    "jit": "#56b4e9",
    "cuda": "#009e73",
}
MARKERS = {"fused": "o", "aten": "s", "reference": "D", "jit": "v", "cuda": "^"}
STYLE = Path(__file__).with_name("plots.mplstyle")
# Below this an error is drawn on the left edge: exact results have no place on a log axis.
SMALLEST_ULP = 1e-2


@dataclass(frozen=True)
class Plot:
    """A plot as SVG for a wide and for a narrow page, and what it shows in words."""

    svg: str
    narrow_svg: str
    words: str

    @property
    def wide(self) -> str:
        """The wide one as a data URI."""
        return _uri(self.svg)

    @property
    def narrow(self) -> str:
        """The narrow one as a data URI."""
        return _uri(self.narrow_svg)


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _figure(draw: Callable[[Axes], None], width: float, height: float) -> str:
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        out = io.BytesIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue().decode()


def plot(draw: Callable[[Axes], None], lines: int, words: str) -> Plot:
    """Draw twice, for a wide page and a narrow one, high enough for that many lines."""
    height = 1.1 + 0.34 * lines
    return Plot(_figure(draw, 9.6, height), _figure(draw, 3.9, height + 0.5), words)


def oracle(results: Iterable[Result]) -> Plot | None:
    """The largest error of each row against the oracle, per backend and dtype, eager beside it."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in results:
        worst: dict[tuple[str, str], float] = {}
        for error in result.largest_errors:
            for backend, ulp in ((error.backend, error.ulp), ("reference", error.eager_ulp)):
                key = (error.dtype, backend)
                worst[key] = max(worst.get(key, 0.0), ulp)
        for key, ulp in worst.items():
            groups[key].append(ulp)
    if not groups:
        return None
    keys = sorted(groups, key=lambda key: (key[0], list(COLOURS).index(key[1])))

    def draw(axes: Axes) -> None:
        for at, key in enumerate(keys):
            shown = [max(ulp, SMALLEST_ULP) for ulp in groups[key]]
            axes.plot(shown, [at] * len(shown), MARKERS[key[1]], color=COLOURS[key[1]], alpha=0.75)
        axes.set_xscale("log")
        axes.set_yticks(range(len(keys)), [_label(*key) for key in keys])
        axes.invert_yaxis()
        axes.set_xlabel("largest error, units in the last place")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(visible=True, axis="x")

    dtype, backend = max(groups, key=lambda key: max(groups[key]))
    return plot(
        draw,
        len(keys),
        f"Largest error against the oracle, one point a row of the matrix: "
        f"{max(groups[dtype, backend]):.2g} ulp at most, by {_label(dtype, backend)}.",
    )


def speed(results: Iterable[Result]) -> Plot | None:
    """How many times faster than eager each backend is, per case, one point a row."""
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for each in result.speed:
            groups[f"{each.case}, {each.dtype}"][each.backend].append(each.ratio)
    if not groups:
        return None
    cases = list(groups)
    ratios = [r for by_backend in groups.values() for rs in by_backend.values() for r in rs]

    def draw(axes: Axes) -> None:
        drawn = set()
        for at, case in enumerate(cases):
            for backend, found in groups[case].items():
                axes.plot(
                    found,
                    [at] * len(found),
                    MARKERS[backend],
                    color=COLOURS[backend],
                    alpha=0.75,
                    label=None if backend in drawn else backend,
                )
                drawn.add(backend)
        axes.axvline(1.0, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1.08 * max(*ratios, 1.0))
        axes.set_yticks(range(len(cases)), cases)
        axes.set_ylim(len(cases) - 0.5, -0.5)
        axes.set_xlabel("times faster than eager PyTorch (1 is equal)")
        axes.grid(visible=True, axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

    return plot(
        draw,
        len(cases) + 1,
        f"Speed against eager PyTorch in the same run, one point a row of the matrix: "
        f"from {min(ratios):.2f} to {max(ratios):.2f} times.",
    )


def _label(dtype: str, backend: str) -> str:
    return f"{'eager' if backend == 'reference' else backend}, {dtype}"
