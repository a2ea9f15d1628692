"""The records, one a processor, and the pages of docs made from them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from torchproof.config import ROOT
from torchproof.files import write_atomically

from benchmarks.runs import overview, picture, sweep, tables, targets
from benchmarks.runs.figures import BenchError, from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torchproof.machine.processor import Processor

    from benchmarks.runs.figures import Run

FOLDER = ROOT / "docs" / "benchmarks"
PATH = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
PICTURE = "speed.svg"
CUDA = FOLDER / "cuda.json"
CELLS, SWEEPS = "cells", "sweeps"
"""The folders there with those of the cells of lltm.cells and of the sweeps, one a processor."""
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


def path(of: Processor, folder: str = "") -> Path:
    """Where a processor's record is, or that in one of the folders."""
    return FOLDER / folder / f"{of.slug}.json"


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
    return _by_title(file for file in FOLDER.glob("*.json") if file != CUDA)


def _in(folder: str) -> tuple[Run, ...]:
    """The records in one of the folders."""
    return _by_title((FOLDER / folder).glob("*.json"))


def _by_title(files: Iterable[Path]) -> tuple[Run, ...]:
    return tuple(sorted(map(read, files), key=lambda run: run.processor.title))


def store(run: Run) -> None:
    """Make a run the record of its processor, or of the GPU, and rebuild the pages.

    The dtypes that it left out are kept of a record of the same kernels, hardware and software.
    """
    file = CUDA if run.on_gpu else path(run.processor, CELLS if run.of_cells else "")
    with suppress(BenchError):  # there is no record yet, or none that can be read
        run = run.with_dtypes_of(read(file))
    _keep(run, file)


def store_sweep(run: Run) -> None:
    """Make a sweep that of its processor, and rebuild the pages."""
    _keep(run, path(run.processor, SWEEPS))


def _keep(run: Run, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
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
    runs, of_cells, sweeps = records(), _in(CELLS), _in(SWEEPS)
    page, readme = (file.read_text(encoding="utf-8") for file in (PATH, README))
    page = between(CPU_MARKS, _lined(overview.over(runs, of_cells, sweeps)), page, PATH)
    if CUDA.is_file():
        page = between(CUDA_MARKS, _of_gpu(read(CUDA)), page, PATH)
    return {
        **{path(run.processor).with_suffix(".md"): _page(run) for run in runs},
        **{path(run.processor, CELLS).with_suffix(".md"): _page(run) for run in of_cells},
        **{path(run.processor, SWEEPS).with_suffix(".md"): _page_of_sweep(run) for run in sweeps},
        FOLDER / PICTURE: picture.svg(runs),
        PATH: page,
        README: between(README_MARKS, "\n".join(overview.short(runs)) + "\n", readme, README),
    }


def _lined(lines: Iterable[str]) -> str:
    return "\n" + "\n".join(lines) + "\n\n"


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


def _page(run: Run) -> str:
    """A processor's page."""
    title = f"Cells on {run.processor.title}" if run.of_cells else run.processor.title
    return f"{_head(run, title)}{markdown(run, '##')}"


def _head(run: Run, title: str) -> str:
    note = "Made from the JSON beside it by `nox -s matrix -- --write`."
    return f"# {title}\n\n{note} The record is {overview.age(run)}.\n\n"


def _page_of_sweep(run: Run) -> str:
    """A sweep's page: what its heat maps say."""
    lines = [_measured(run), "", *(f"- {verdict}" for verdict in sweep.verdicts(run))]
    for found in sweep.maps(run):
        lines += ["", f"## {found.title[:1].upper()}{found.title[1:]}", ""]
        cells = (
            [str(batch), *(_marked(cell, bold="behind") for cell in line)]
            for batch, line in sweep.lines(found)
        )
        lines += overview.table(("batch", *found.sizes), cells, names=1)
    return _head(run, f"A sweep on {run.processor.title}") + "\n".join([*lines, ""])


def _of_gpu(run: Run) -> str:
    """What stands between the marks of CUDA."""
    return f"\nThe record is {overview.age(run)}.\n\n{markdown(run)}\n"


def markdown(run: Run, level: str = "###") -> str:
    """The run's targets and tables, under headings of that level."""
    return "\n".join(_lines(run, level))


def _lines(run: Run, level: str) -> Iterator[str]:
    yield _measured(run)
    yield ""
    yield f"{level} Targets"
    yield ""
    cells = [tables.target_cells(outcome) for outcome in targets.outcomes(run)]
    yield from overview.table(tables.TARGET_HEADINGS, cells)
    yield ""
    yield tables.legend(run)
    for section in tables.sections(run):
        yield ""
        yield f"{level} {section.title[:1].upper()}{section.title[1:]}"
        yield ""
        lines = [[_marked(cell) for cell in line] for line in section.lines]
        yield from overview.table(section.headings, lines)
    yield ""


def _measured(run: Run) -> str:
    software = ", ".join(f"{key} {value}" for key, value in run.software.items())
    return f"Measured on {run.made[:10]}: {'; '.join(hardware(run))}; {software}."


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


def _marked(cell: tables.Cell, bold: str = "ahead") -> str:
    return f"**{cell.text}**" if cell.mark == bold else cell.text
