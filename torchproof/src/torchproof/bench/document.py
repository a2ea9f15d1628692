"""The run of record, and the tables of docs/benchmarks.md made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchproof.bench import tables, targets
from torchproof.bench.figures import BenchError
from torchproof.config import ROOT
from torchproof.files import write_atomically, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torchproof.bench.figures import Run

PATH = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Record:
    """A run of record: its JSON, and the marks that its tables stand between."""

    path: Path
    begin: str
    end: str


def _record(device: str, session: str) -> Record:
    name = device.lower()
    return Record(
        ROOT / "docs" / "benchmarks" / f"{name}.json",
        f"<!-- made from benchmarks/{name}.json by `nox -s {session} -- --write` -->",
        f"<!-- end of the {device} tables -->",
    )


CPU = _record("CPU", "bench")
CUDA = _record("CUDA", "bench-cuda")


def write(run: Run) -> None:
    """Make a run the one of record."""
    write_json((CUDA if run.on_gpu else CPU).path, run.to_json())
    write_atomically(PATH, render(run, PATH.read_text(encoding="utf-8")))


def render(run: Run, text: str) -> str:
    """The document with its tables made anew.

    Raises:
        BenchError: the marks that the tables stand between are gone.
    """
    record = CUDA if run.on_gpu else CPU
    head, begin, rest = text.partition(record.begin)
    _, end, tail = rest.partition(record.end)
    if not begin or not end:
        raise BenchError(
            f"docs/benchmarks.md: expected the marks {record.begin!r} and {record.end!r}"
        )
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
    yield tables.legend(run)
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
