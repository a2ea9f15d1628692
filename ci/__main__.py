"""`python -m ci`: lint workflows, rehearse ci.yml, report a nightly."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof.arguments import count
from torchproof.config import ROOT

from ci import issue
from ci.lint import GITHUB, lint
from ci.read import WorkflowError
from ci.rehearse import FAILURE, SKIPPED, Done, Rehearsal
from torchproof import terminal

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"passed": "green", "success": "green", "failed": "red", FAILURE: "red"}
FOLDER = ROOT / "build" / "rehearsal"
ENVIRONMENTS = ROOT / "build" / "rehearsal-environments"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ci", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lint", help="zizmor, check-jsonschema and actionlint")
    rehearse = commands.add_parser("rehearse", help="run ci.yml here, in clones of HEAD")
    rehearse.add_argument("--jobs", default="", help="only these, and those they need: lint,docs")
    rehearse.add_argument("--rows", type=count, help="only the first rows of a job's matrix")
    tell = commands.add_parser("issue", help="tell of a failed nightly")
    tell.add_argument("run", help="the address of the run")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    chosen = arguments(argv)
    console = terminal.console(soft_wrap=True)
    try:
        return RUN[chosen.command](chosen, console)
    except WorkflowError as error:
        console.print(f"error: {error}", style="red")
        return 2


def run_issue(chosen: argparse.Namespace, console: Console) -> int:
    """Open the issue, or add to it."""
    console.print(issue.tell(chosen.run))
    return 0


def run_lint(_: argparse.Namespace, console: Console) -> int:
    """Run the linters; a linter that could not be had is "not run", and no failure."""
    with tempfile.TemporaryDirectory(prefix="lint-") as scratch:
        verdicts = lint(Path(scratch))
    for verdict in verdicts:
        style = STYLES.get(verdict.status, "yellow")
        console.print(f"{verdict.linter}: {verdict.status}", style=style)
        if verdict.words:
            console.print(verdict.words)
    return 1 if any(verdict.status == "failed" for verdict in verdicts) else 0


def run_rehearsal(chosen: argparse.Namespace, console: Console) -> int:
    """Run ci.yml, with pipx as the one program that this session lends to its jobs."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    programs = FOLDER / "programs"
    programs.mkdir(parents=True)
    own = Path(sys.executable).parent
    # Jobs, and rehearsals of other parts, share the sessions' environments as a warm cache.
    pipx = f'exec "{own / "pipx"}" run nox --envdir "{ENVIRONMENTS}" "${{@:3}}"'
    (programs / "pipx").write_text(f"#!/usr/bin/env bash\n{pipx}\n", encoding="utf-8")
    (programs / "pipx").chmod(0o755)
    rest = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != own]
    os.environ["PATH"] = os.pathsep.join(rest)

    def report(done: Done) -> None:
        style = STYLES.get(done.result, "yellow")
        seconds = "" if done.result == SKIPPED else f" {done.seconds:.0f} s"
        why = f" ({done.why})" if done.why else ""
        line = f"{done.result}{seconds}  {done.job}  {done.step}{why}"
        console.print(line, style=style)

    rehearsal = Rehearsal(
        ROOT, FOLDER, [programs], report, tuple(filter(None, chosen.jobs.split(","))), chosen.rows
    )
    passed = rehearsal.run(GITHUB / "workflows" / "ci.yml")
    console.print(f"the logs are in {FOLDER / 'logs'}")
    return 0 if passed else 1


RUN = {"lint": run_lint, "rehearse": run_rehearsal, "issue": run_issue}

if __name__ == "__main__":
    sys.exit(main())
