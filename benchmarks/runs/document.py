"""The records, one a processor, and the pages of docs made from them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from torchproof.config import ROOT
from torchproof.files import write_atomically

from benchmarks.runs import picture, tables, targets
from benchmarks.runs.figures import BenchError, from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from torchproof.machine.processor import Processor

    from benchmarks.runs.figures import Run

FOLDER = ROOT / "docs" / "benchmarks"
PATH = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
PICTURE = "speed.svg"
CUDA = FOLDER / "cuda.json"
CELLS = "cells"
"""The folder there with the records of the cells of lltm.cells, one a processor."""
# Each device's tables are between marks of their own in docs/benchmarks.md.
CPU_MARKS = (
    "<!-- made from the records in docs/benchmarks by `nox -s matrix -- --write` -->",
    "<!-- end of the CPU tables -->",
)
CUDA_MARKS = (
    "<!-- made from benchmarks/cuda.json by `nox -s bench-cuda -- --write` -->",
    "<!-- end of the CUDA tables -->",
)
README_MARKS = (
    "<!-- made from docs/benchmarks by `nox -s matrix -- --write` -->",
    "<!-- end of the speed table -->",
)
WORST = ("work", "figure", "target", "worst", "on", "in", "good", "verdict")


def path(of: Processor, *, of_cells: bool = False) -> Path:
    """Where a processor's record is."""
    return (FOLDER / CELLS if of_cells else FOLDER) / f"{of.slug}.json"


def read(file: Path) -> Run:
    """A run that was stored.

    Raises:
        BenchError: the file is missing or something else.
    """
    try:
        return from_text(file.read_bytes(), str(file))
    except OSError as error:
        raise BenchError(f"{file}: {error}; give a bench.json of an earlier run") from error


def records() -> tuple[Run, ...]:
    """The record of each processor, by title; GPUs have a file of their own."""
    files = (file for file in FOLDER.glob("*.json") if "hardware" in json.loads(file.read_text()))
    return _by_title(file for file in files if file != CUDA)


def _by_title(files: Iterable[Path]) -> tuple[Run, ...]:
    return tuple(sorted(map(read, files), key=lambda run: run.processor.title))


def store(run: Run) -> None:
    """Make a run the record of its processor, or of the GPU, and rebuild the pages.

    The dtypes that it left out are kept of a record of the same kernels, hardware and software.
    """
    file = CUDA if run.on_gpu else path(run.processor, of_cells=run.of_cells)
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(BenchError):  # there is no record yet, or none that can be read
        run = run.with_dtypes_of(read(file))
    write_atomically(file, run.to_text())
    write()


def write() -> None:
    """Rebuild what is made from the records."""
    for file, text in made().items():
        write_atomically(file, text)


def check() -> tuple[str, ...]:
    """Each page that differs from the records, in one sentence."""
    return tuple(
        f"{file.relative_to(ROOT)}: differs from the records in docs/benchmarks or the age of the "
        "kernels; run `nox -s matrix -- --write`"
        for file, text in made().items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    )


def made() -> dict[Path, str]:
    """Every page made from the records."""
    runs, of_cells = records(), _by_title((FOLDER / CELLS).glob("*.json"))
    page, readme = (file.read_text(encoding="utf-8") for file in (PATH, README))
    page = between(CPU_MARKS, "\n" + "\n".join(_over(runs)) + "\n\n", page, PATH)
    if CUDA.is_file():
        page = between(CUDA_MARKS, _of_gpu(read(CUDA)), page, PATH)
    return {
        **{path(run.processor).with_suffix(".md"): _page(run) for run in runs},
        **{path(run.processor, of_cells=True).with_suffix(".md"): _page(run) for run in of_cells},
        FOLDER / PICTURE: picture.svg(runs),
        PATH: page,
        README: between(README_MARKS, "\n".join(_short(runs)) + "\n", readme, README),
    }


def between(marks: tuple[str, str], new: str, text: str, file: Path) -> str:
    """A text with what is between two marks replaced.

    Raises:
        BenchError: a mark is gone.
    """
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise BenchError(f"{file.name}: expected the marks {marks[0]!r} and {marks[1]!r}")
    return f"{head}{begin}\n{new}{end}{tail}"


def age(run: Run) -> str:
    """Whether a record still says something of the kernels."""
    return "of these kernels" if run.current else "**older than the kernels**"


def _over(runs: Sequence[Run]) -> Iterator[str]:
    """What holds over all records, and where each is."""
    yield from _table(
        ("processor", "measured", "caches", "races won", "kernels"), map(_summary, runs), names=5
    )
    yield ""
    yield "The worst of every record:"
    yield ""
    yield from _table(WORST, _worst(runs), names=3)


def _summary(run: Run) -> tuple[str, ...]:
    of = run.processor
    return (
        f"[{of.title}](benchmarks/{of.slug}.md): {of.details}",
        run.made[:10],
        of.cache_sizes or "not recorded",
        tables.won(run),
        age(run),
    )


def _worst(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for title, outcome in targets.worst({_dated(run): run for run in runs}):
        work, unit, bound, figure, where, good, verdict = tables.target_cells(outcome)
        yield work, unit, bound, figure, title, where, good, verdict


def _dated(run: Run) -> str:
    return run.processor.title + ("" if run.current else " (older kernels)")


def _short(runs: Sequence[Run]) -> Iterator[str]:
    """The README's table: the targets, the worst figure over the records and whose it is."""
    lines = ((f"{w}: {u}", b, f, t, v) for w, u, b, f, t, _, _, v in _worst(runs))
    yield from _table(("figure", "target", "worst", "on", "verdict"), lines, names=2)
    yield ""
    ages = (f"{run.processor.title}, {run.made[:10]}, {age(run)}" for run in runs)
    yield f"Records: {'; '.join(ages)}."


def _page(run: Run) -> str:
    """A processor's page."""
    of = run.processor
    note = "Made from the JSON beside it by `nox -s matrix -- --write`."
    title = f"Cells on {of.title}" if run.of_cells else of.title
    return f"# {title}\n\n{note} The record is {age(run)}.\n\n{markdown(run, '##')}"


def _of_gpu(run: Run) -> str:
    """What stands between the marks of CUDA."""
    return f"\nThe record is {age(run)}.\n\n{markdown(run)}\n"


def markdown(run: Run, level: str = "###") -> str:
    """The run's targets and tables, under headings of that level."""
    return "\n".join(_lines(run, level))


def _lines(run: Run, level: str) -> Iterator[str]:
    software = ", ".join(f"{key} {value}" for key, value in run.software.items())
    yield f"Measured on {run.made[:10]}: {'; '.join(hardware(run))}; {software}."
    yield ""
    yield f"{level} Targets"
    yield ""
    cells = [tables.target_cells(outcome) for outcome in targets.outcomes(run)]
    yield from _table(tables.TARGET_HEADINGS, cells)
    yield ""
    yield tables.legend(run)
    for section in tables.sections(run):
        yield ""
        yield f"{level} {section.title[:1].upper()}{section.title[1:]}"
        yield ""
        lines = [[_marked(cell) for cell in line] for line in section.lines]
        yield from _table(section.headings, lines)
    yield ""


def hardware(run: Run) -> Iterator[str]:
    """What it ran on, a clause for each device and library."""
    of = run.processor
    if run.on_gpu:
        facts = {k: v for k, v in run.hardware.items() if k not in ("processor", "in_use")}
        yield ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    yield f"{of.title} ({of.details})"
    yield f"caches {of.cache_sizes or 'not recorded'}"
    yield f"instruction sets {', '.join(of.instruction_sets) or 'not recorded'}"
    yield from (f"{name} uses {what or 'none'}" for name, what in run.hardware["in_use"].items())


def _marked(cell: tables.Cell) -> str:
    return f"**{cell.text}**" if cell.mark == "ahead" else cell.text


def _table(
    headings: Iterable[str], lines: Iterable[Iterable[str]], names: int = tables.NAMES
) -> Iterator[str]:
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    rules = ["---"] * names + ["---:"] * (len(headings) - names)
    yield f"|{'|'.join(rules)}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"
