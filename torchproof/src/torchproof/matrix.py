"""`torchproof run`, `list`, `expand`, `check` and `report`: the rows of matrix.toml."""

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from torchproof import config, terminal
from torchproof.arguments import count
from torchproof.errors import TorchproofError, explain_error
from torchproof.lock import BusyError
from torchproof.machine import emulation
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import Machine, this_machine
from torchproof.machine.processes import Stopped
from torchproof.made import makers
from torchproof.report import proofs, run_report
from torchproof.rows import row_rules
from torchproof.rows.plan import Placed, expand, place, select
from torchproof.rows.progress import Progress
from torchproof.rows.results import FAILED, NOT_RUN, Result, kept
from torchproof.rows.scheduler import build, run, tools

BUILD = config.ROOT / "build" / "matrix"
# What does something else than to run rows.
ONLY = ("check", "write", "list", "build", "report")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="torchproof run",
        description="Build, audit, test and time the rows of matrix.toml.",
        epilog="Exit codes: 0 nothing failed; 1 a row failed, was not recorded or, with --strict,"
        " not run, or a rule is broken; 2 bad input, or no place to write; 130 interrupted.",
    )
    parser.add_argument("--tier", default="local", help="the rows to run (default: %(default)s)")
    parser.add_argument(
        "--select",
        action="append",
        metavar="KEY=VALUE,...",
        help="only rows with these values: torch=2.15,python=3.12; a key given twice means either",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="only check matrix.toml and what is made from it"
    )
    instead.add_argument(
        "--write", action="store_true", help="only write what is made from it and the records"
    )
    instead.add_argument("--list", action="store_true", help="only list the rows")
    instead.add_argument("--build", action="store_true", help="only build the rows' wheels")
    instead.add_argument(
        "--report", action="store_true", help="run nothing: report what earlier runs have kept"
    )
    parser.add_argument(
        "--prebuilt", action="store_true", help="build nothing: a row whose wheel is missing fails"
    )
    parser.add_argument(
        "--strict", action="store_true", help="a row that was not run counts as failed"
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument(
        "--jobs",
        type=count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="rows at a time (default: one a core, %(default)s)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="run only what is missing, failed or changed"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep in docs/proofs which rows have passed on this processor, and that the tier has",
    )
    chosen = parser.parse_args(argv)
    chosen.select = [each for each in chosen.select or () if each]
    others = [mode for mode in ONLY if getattr(chosen, mode)]
    if chosen.record and others:
        parser.error(f"--record takes a run: leave --{others[0]} out")
    return chosen


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when nothing failed."""
    chosen = arguments(argv)
    console = terminal.console(stderr=chosen.json, wide=True)
    try:
        matrix = config.load()
        broken = [*map(str, row_rules.violations(matrix))]
        if chosen.check and not broken:
            broken = [line for maker in makers() for line in maker.check()]
        if chosen.check or broken:
            return check(broken, console)
        if chosen.write:
            for maker in makers():
                maker.write()
            return 0
        machine = emulation.find(matrix, this_machine())
        placed = chosen_rows(matrix, machine, chosen)
        if not (chosen.list or chosen.report) and fetch_emulated(matrix, placed, console):
            machine = emulation.find(matrix, machine)
            placed = chosen_rows(matrix, machine, chosen)
        commit = proofs.clean_commit() if chosen.record else None
        if not chosen.list:
            proofs.read_all()  # what the report shows: one that is damaged must not end the run
    except (TorchproofError, OSError) as error:
        terminal.print_error(console, error)
        return 2
    if chosen.list:
        return list_rows(matrix, placed, console, as_json=chosen.json)
    if chosen.report:
        results = tuple(kept(BUILD / "rows", p) for p in placed)
    else:
        came = run_rows(matrix, machine, placed, chosen, console)
        if isinstance(came, int):
            return came
        results = came
    recorded = commit is None or record(results, machine, commit, chosen, console)
    code = conclude(results, chosen, console)
    return code if recorded else 1


def chosen_rows(
    matrix: config.Matrix, machine: Machine, chosen: argparse.Namespace
) -> tuple[Placed, ...]:
    """The rows of the tier that were selected, on this machine."""
    rows = expand(matrix, chosen.tier)
    if not rows:
        others = ", ".join(sorted({spec.tier for spec in matrix.rows}))
        raise config.ConfigError(f"tier {chosen.tier!r} has no row; rows are of {others}")
    placed = place(matrix, rows, machine)
    return select(placed, ",".join(chosen.select)) if chosen.select else placed


def fetch_emulated(matrix: config.Matrix, placed: tuple[Placed, ...], console: Console) -> bool:
    """Fetch what emulates the rows that nothing emulates yet; whether any was."""
    wanted = dict.fromkeys((p.row.platform, p.row.python) for p in placed if p.fetchable)
    fetched = False
    for platform, python in wanted:
        console.print(f"fetching CPython {python} of {platform} and what emulates it here")
        try:
            with tempfile.TemporaryDirectory(prefix="torchproof-") as scratch:
                emulation.fetch(python, emulation.of(matrix, platform), Path(scratch))
            fetched = True
        except NotOffered as error:
            console.print(f"not fetched: {error}", style="yellow", soft_wrap=True)
    return fetched


def check(troubles: list[str], console: Console) -> int:
    """Tell what is wrong, a line each; on standard output as JSON when the console is elsewhere."""
    if console.stderr:
        print(json.dumps(troubles, indent=1))
    for trouble in troubles:
        console.print(trouble, style="red", soft_wrap=True)
    if not troubles:
        console.print("matrix.toml: every rule holds, and what is made from it is up to date")
    return 1 if troubles else 0


def listed(matrix: config.Matrix, placed: Placed) -> dict[str, Any]:
    """A row with what a workflow needs to run it elsewhere."""
    platform = matrix.platform(placed.row.platform)
    return asdict(placed.row) | {
        "id": placed.row.id,
        "missing": placed.missing,
        "runner": platform.runner,
        "proven": platform.proven,
    }


def list_rows(
    matrix: config.Matrix, placed: tuple[Placed, ...], console: Console, *, as_json: bool
) -> int:
    """Print the rows."""
    if as_json:
        print(json.dumps([listed(matrix, p) for p in placed]))
    else:
        console.print(run_report.plan(placed))
    return 0


def run_rows(
    matrix: config.Matrix,
    machine: Machine,
    placed: tuple[Placed, ...],
    chosen: argparse.Namespace,
    console: Console,
) -> tuple[Result, ...] | int:
    """Run the rows; their results, or the exit code where the run ended before them."""
    try:
        with Progress(console) as progress:
            shared = tools(matrix, machine, BUILD, progress, chosen.jobs, prebuilt=chosen.prebuilt)
            if chosen.build:
                return build(placed, shared, jobs=chosen.jobs)
            return run(placed, shared, jobs=chosen.jobs, resume=chosen.resume)
    except (KeyboardInterrupt, Stopped):
        console.print("interrupted: what is proven is kept; go on with --resume", style="yellow")
        return INTERRUPTED
    except BusyError as error:
        terminal.print_error(console, error)
        return 2
    except OSError as error:
        kept_rows = "finished rows are kept: continue with --resume"
        terminal.print_error(console, f"{explain_error(error)}; {kept_rows}")
        return 2


def conclude(results: tuple[Result, ...], chosen: argparse.Namespace, console: Console) -> int:
    """Write the report; the exit code."""
    written = run_report.write(BUILD, chosen.tier, results)
    if chosen.json:
        print(json.dumps(written, indent=1))
    console.print(run_report.summary(results))
    console.print(f"report: {shown(BUILD / 'index.html')}, {shown(BUILD / 'report.json')}")
    built = [] if chosen.build else different_builds(results)
    for sentence in built:
        console.print(sentence, style="red", soft_wrap=True)
    bad = {FAILED, NOT_RUN} if chosen.strict and not chosen.build else {FAILED}
    return 1 if built or any(result.status in bad for result in results) else 0


def record(
    results: tuple[Result, ...],
    machine: Machine,
    commit: str,
    chosen: argparse.Namespace,
    console: Console,
) -> bool:
    """Keep what has passed, for the report shows it; whether it could be."""
    try:
        if proofs.clean_commit() != commit:
            raise proofs.Unrecordable("--record: the tree moved to another commit meanwhile")
        whole = not chosen.select and chosen.tier in proofs.TIERS
        file = proofs.record(chosen.tier, results, machine.processor, commit, whole=whole)
    except proofs.Unrecordable as error:
        terminal.print_error(console, error)
        return False
    console.print(f"recorded: {shown(file)}; `torchproof run --write` makes README.md of it")
    return True


def different_builds(results: Iterable[Result]) -> list[str]:
    """A sentence for each wheel that was not one file in every row that names it."""
    hashes: dict[str, set[str]] = {}
    for result in results:
        if result.artifact:
            hashes.setdefault(result.artifact["name"], set()).add(result.artifact["sha256"])
    return [
        f"{name}: the rows were run on {len(found)} different wheels of this name; "
        "run them again without --resume"
        for name, found in hashes.items()
        if len(found) > 1
    ]


def shown(path: Path) -> str:
    """A path as the user would type it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
