"""`python -m benchmarks.runs`: what `nox -s bench` runs."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof.config import ROOT
from torchproof.files import write_atomically
from torchproof.machine import processor

from benchmarks.runs import compare, document, figures, measure, page, plots, sweep, tables
from benchmarks.runs.figures import BenchError, Run
from benchmarks.runs.scopes import CUDA, FULL, OF_CELLS, QUICK, SCOPES, SWEEP, Scope
from torchproof import terminal

if TYPE_CHECKING:
    from rich.console import Console

MATRIX_REPORT = ROOT / "build" / "matrix" / "index.html"
INTERRUPTED = 130
RECORD = Path()
"""What `--compare` means without a file."""
NOT_RUN = 3
"""Neither right (0) nor wrong (1): nothing was measured."""


def duration(text: str) -> float:
    """A time in seconds."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, got {text}")
    return value


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="nox -s bench --",
        description="Race lltm against everyone else, and against the floors.",
    )
    scope = parser.add_mutually_exclusive_group()
    for each in SCOPES.values():
        scope.add_argument(
            f"--{each.name}", dest="scope", action="store_const", const=each, help=each.what
        )
    parser.set_defaults(scope=QUICK)
    parser.add_argument(
        "--select",
        metavar="KEY=VALUE,...",
        help="only rows with these values: op=cell,case=16x32x128,work=forward",
    )
    parser.add_argument(
        "--without",
        choices=FULL.dtypes,
        action="append",
        default=[],
        help="leave out a dtype, such as float16 where eager takes seconds a call for want of "
        "instructions; its rows are not run, and --write keeps those of the same kernels",
    )
    parser.add_argument(
        "--without-compilers",
        dest="compilers",
        action="store_false",
        help="leave out torch.compile, whose compilations take most of the time",
    )
    parser.add_argument(
        "--seconds",
        type=duration,
        help="to time each row (default: 1, of a sweep 0.1; each is timed five times at least)",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="?",
        const=RECORD,
        metavar="STORED.json",
        help="name what is slower than in a stored bench.json, by default this processor's record "
        "in docs/benchmarks; exit 1 if anything is",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what unchanged sources have measured"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="make this run the record of this processor in docs/benchmarks",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    chosen = parser.parse_args(argv)
    if chosen.seconds is None:
        chosen.seconds = chosen.scope.seconds
    if chosen.write and (chosen.select or not chosen.scope.is_whole):
        whole = ", ".join(f"--{each.name}" for each in SCOPES.values() if each.is_whole)
        parser.error(f"--write keeps whole runs: give one of {whole} with it, and no --select")
    if chosen.write and not chosen.compilers and chosen.scope is not CUDA:
        parser.error("--write keeps whole runs: omit --without-compilers")
    if chosen.compare is not None and chosen.scope is SWEEP:
        parser.error("--compare: a sweep compares ours with eager, not with a stored run")
    return chosen


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when every result was right and nothing regressed."""
    chosen = arguments(argv)
    console = terminal.console(stderr=chosen.json, wide=True)
    try:
        stored = read_stored(chosen.compare, chosen.scope) if chosen.compare is not None else None
        if chosen.scope is CUDA and (reason := measure.gpu_unavailable_reason()):
            console.print(f"bench-cuda: not run: {reason}", style="yellow")
            return NOT_RUN
        run, right = measure_all(chosen, console)
        folder = chosen.scope.folder
        if chosen.scope is SWEEP:
            if chosen.write:
                document.store_sweep(run)
            return report_sweep(run, console, folder, as_json=chosen.json) or (0 if right else 1)
        if chosen.write:
            document.store(run)
        return report(run, stored, console, folder, as_json=chosen.json) or (0 if right else 1)
    except BenchError as error:
        console.print(f"error: {error}", style="red")
        return 2
    except KeyboardInterrupt:
        console.print("interrupted: finished parts are kept; go on with --resume", style="yellow")
        return INTERRUPTED


def read_stored(path: Path, scope: Scope) -> Run:
    """A stored run: the file's, or this processor's record.

    Raises:
        BenchError: there is none, or the file is something else.
    """
    if path == RECORD:
        here = processor.read()
        folder = document.CELLS if scope is OF_CELLS else ""
        path = document.CUDA if scope is CUDA else document.path(here, folder)
        if not path.is_file():
            raise BenchError(
                f"--compare: there is no record of this processor, {here.title}, in "
                f"docs/benchmarks; make one with --{scope.whole} --write, or give a file"
            )
    return document.read(path)


def measure_all(chosen: argparse.Namespace, console: Console) -> tuple[Run, bool]:
    """Measure all parts; the run, and whether every result was right."""
    if chosen.write:
        measure.check_kernels(measure.installed_package())
    measurer = measure.Measurer(
        chosen.scope.folder, chosen.scope, chosen.seconds, chosen.select, chosen.compilers
    )
    every = measure.parts(chosen.scope, chosen.select)
    todo = [part for part in every if part.dtype not in chosen.without]
    if not todo:
        raise BenchError(f"--without {', '.join(chosen.without)} leaves nothing to measure")
    documents, right = [], True
    for count, part in enumerate(todo, start=1):
        console.print(f"[{count}/{len(todo)}] {part.name}")
        measured = measure.read(measurer.result(part)) if chosen.resume else None
        if measured is None:
            started = time.monotonic()
            came = measurer.measure(part)
            measured, right = came.document, right and came.right
            console.print(f"{part.name}: {time.monotonic() - started:.0f} s", style="dim")
        if measured is not None:
            documents.append(measured)
    if not documents:
        raise BenchError(f"--select {chosen.select} leaves no row of --{chosen.scope.name}")
    return figures.from_pytest_benchmark(documents), right


def report(run: Run, stored: Run | None, console: Console, folder: Path, *, as_json: bool) -> int:
    """Write the report and print it; 1 when something regressed."""
    comparison = compare.compare(run, stored) if stored else None
    write_atomically(folder / "bench.json", run.to_text())
    matrix = os.path.relpath(MATRIX_REPORT, folder) if MATRIX_REPORT.is_file() else None
    write_atomically(folder / "index.html", page.render(run, comparison, matrix=matrix))
    for name, plot in plots.speed(run):
        write_atomically(folder / f"{name}.svg", plot.svg)
    if as_json:
        print(run.to_text(), end="")
    console.print(tables.table(run))
    if comparison:
        console.print(tables.comparison(comparison))
    console.print(f"report: {folder / 'index.html'}, {folder / 'bench.json'}", soft_wrap=True)
    return 1 if comparison and comparison.regressions else 0


def report_sweep(run: Run, console: Console, folder: Path, *, as_json: bool) -> int:
    """Write the heat maps and print what is behind; 1 when anything is."""
    write_atomically(folder / "bench.json", run.to_text())
    write_atomically(folder / "index.html", page.render_sweep(run))
    if as_json:
        print(run.to_text(), end="")
    console.print("\n".join(sweep.verdicts(run)))
    console.print(f"report: {folder / 'index.html'}, {folder / 'bench.json'}", soft_wrap=True)
    return 1 if sweep.behind(run) else 0


if __name__ == "__main__":
    sys.exit(main())
