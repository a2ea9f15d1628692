"""The run as one page a person reads: no network, no file beside it needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchproof.report import page

from benchmarks.runs import document, plots, sweep, tables, targets

if TYPE_CHECKING:
    from benchmarks.runs.compare import Comparison
    from benchmarks.runs.figures import Run


def render(run: Run, comparison: Comparison | None, *, matrix: str | None) -> str:
    """The page.

    Args:
        run: what to show.
        comparison: with a stored run, if there was one.
        matrix: the address of the matrix's report, if there is one.
    """
    return (
        page.environment(Path(__file__).parent)
        .get_template("page.html")
        .render(
            run=run,
            hardware=list(document.hardware(run)),
            sections=list(tables.sections(run)),
            plots=[plot for _, plot in plots.speed(run)],
            legend=tables.legend(run),
            verdicts=[str(verdict) for verdict in tables.verdicts(run)],
            target_headings=tables.TARGET_HEADINGS,
            targets=[tables.target_cells(outcome) for outcome in targets.outcomes(run)],
            comparison=comparison,
            matrix=matrix,
            names=tables.NAMES,
        )
    )


def render_sweep(run: Run) -> str:
    """The page of a sweep: its heat maps, and a table of them for readers without pictures."""
    return (
        page.environment(Path(__file__).parent)
        .get_template("sweep.html")
        .render(
            run=run,
            hardware=list(document.hardware(run)),
            verdicts=sweep.verdicts(run),
            plots=[sweep.plot_of(each) for each in sweep.maps(run)],
            maps=[(each.title, each.sizes, sweep.lines(each)) for each in sweep.maps(run)],
        )
    )
