"""The run of record, and the tables of docs/benchmarks.md made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bench import tables, targets
from matrix.bench.figures import BenchError
from matrix.config import ROOT
from matrix.files import write_atomically, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.bench.figures import Run

PATH = ROOT / "docs" / "benchmarks.md"
RECORD = ROOT / "docs" / "benchmarks" / "cpu.json"
BEGIN = "<!-- made from benchmarks/cpu.json by `nox -s bench -- --write` -->"
END = "<!-- end of the CPU tables -->"


def write(run: Run) -> None:
    """Make a run the one of record."""
    write_json(RECORD, run.to_json())
    write_atomically(PATH, render(run, PATH.read_text(encoding="utf-8")))


def render(run: Run, text: str) -> str:
    """The document with its tables made anew.

    Raises:
        BenchError: the marks that the tables stand between are gone.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"docs/benchmarks.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{head}{begin}\n\n{markdown(run)}\n{end}{tail}"


def markdown(run: Run) -> str:
    """The run's targets and tables."""
    return "\n".join(_lines(run))


def _lines(run: Run) -> Iterator[str]:
    machine = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in run.hardware.items())
    software = ", ".join(f"{key} {value}" for key, value in run.software.items())
    yield f"Measured on {run.made[:10]}: {machine}; {software}."
    yield ""
    yield "### To reach"
    yield ""
    cells = [tables.target_cells(outcome) for outcome in targets.outcomes(run)]
    yield from _table((*tables.TARGET_HEADINGS[:-1], "verdict"), cells)
    yield ""
    yield tables.LEGEND
    for section in tables.sections(run):
        yield ""
        yield f"### {section.title[:1].upper()}{section.title[1:]}"
        yield ""
        lines = [[_marked(cell) for cell in line] for line in section.lines]
        yield from _table(section.headings, lines)
    yield ""


def _marked(cell: tables.Cell) -> str:
    return f"**{cell.text}**" if cell.mark == "ahead" else cell.text


def _table(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> Iterator[str]:
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    rules = ["---"] * tables.NAMES + ["---:"] * (len(headings) - tables.NAMES)
    yield f"|{'|'.join(rules)}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"
