"""The report: JSON for machines, a table for the terminal, a page for people; the same numbers."""

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchproof.config import HOME, HOST, load, project
from torchproof.files import read_sealed, write_atomically, write_sealed
from torchproof.machine import processor
from torchproof.report import campaigns, page, proofs
from torchproof.rows import results
from torchproof.rows.plan import Placed, Row
from torchproof.rows.progress import STYLES
from torchproof.rows.results import NOT_RUN, Result

DASH = "—"
# Behind a torch version: what it ran on, unless that is a CPU build.
MARKS = {"stubbed": " s", "real": " r"}
LEGEND = (
    "level: what torch and the extension were held to, host is all that the processor has; "
    "tests: passed/all; ulp: largest error against the oracle; speed: against eager PyTorch in the "
    "same run; torch s: a CUDA build, stubbed; r: a CUDA build on the real NVIDIA packages"
)


def write(folder: Path, tier: str, rows: Iterable[Result]) -> dict[str, Any]:
    """Write report.json and index.html into `folder`; returns the JSON document."""
    rows = tuple(rows)
    document = {
        "tier": tier,
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processors": processors(rows),
        "rows": [
            dataclasses.asdict(result)
            | {
                "outcome": result.outcome,
                "speedup": result.speedup,
                "worst": dataclasses.asdict(result.worst) if result.worst else None,
            }
            for result in rows
        ],
        "external_checks": [
            dataclasses.asdict(each) | {"status": NOT_RUN} for each in load().external_checks
        ],
        "campaigns": campaigns.to_json(),
    }
    write_sealed(folder / "report.json", document)
    write_atomically(folder / "index.html", page.render(folder, tier, rows, proofs.read_all()))
    return document


def processors(rows: Iterable[Result]) -> list[dict[str, Any]]:
    """Every processor that rows ran on, once."""
    found = {row.processor["title"]: row.processor for row in rows if row.processor}
    return list(found.values())


def refresh(folder: Path) -> None:
    """Rebuild index.html from what is in `folder`: another session has added to it.

    Without a whole report.json, it has every row that is kept.
    """
    kept = sorted(path.stem for path in (folder / "rows").glob("*.json"))
    known = read_sealed(folder / "report.json")
    tier, names = (known["tier"], [row["id"] for row in known["rows"]]) if known else ("none", kept)
    found = [results.read(folder / "rows", name) for name in names]
    rows = [result for result in found if result is not None]
    write_atomically(folder / "index.html", page.render(folder, tier, rows, proofs.read_all()))


def summary(rows: Iterable[Result]) -> RenderableType:
    """One line a row, and below it why a row did not pass."""
    rows = tuple(rows)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("torch", "py", "binding", "compiler", "level"):
        table.add_column(heading, no_wrap=True)
    for heading in ("build s", "KiB", "tests", "ulp", "speed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for result in rows:
        table.add_row(*cells(result), Text(result.outcome, style=STYLES[result.status]))
    reasons = [
        Text.assemble(
            (f"{result.status}: ", STYLES[result.status]), f"{result.id}: {result.reason}"
        )
        for result in rows
        if result.reason
    ]
    external = [
        Text.assemble(
            (f"{NOT_RUN}: ", STYLES[NOT_RUN]), f"{each.what}: {each.reason}; {each.command}"
        )
        for each in load().external_checks
    ]
    ran_on = [
        Text(f"on {found.title}: {found.details}; {found.cache_sizes or 'caches not reported'}")
        for found in map(processor.from_json, processors(rows))
    ]
    tried = [campaigns.summary()] if project().campaigns else []
    return Group(table, *ran_on, *reasons, *external, Text(LEGEND, style="dim"), *tried)


def cells(result: Result) -> tuple[str, ...]:
    """A row's figures in words."""
    artifact, tests, worst = result.artifact, result.tests, result.worst
    return (
        result.torch + MARKS.get(result.packages, ""),
        python_on(result),
        result.binding,
        result.compiler if result.cuda == "cpu" else f"{result.compiler} CUDA {result.cuda}",
        result.level,
        f"{artifact['seconds']:.1f}" if artifact else DASH,
        f"{artifact['bytes'] / 1024:.0f}" if artifact else DASH,
        f"{tests.passed}/{tests.passed + tests.failed + tests.skipped}" if tests else DASH,
        f"{worst.ulp:.1f}" if worst else DASH,
        f"{result.speedup:.2f}x" if result.speedup else DASH,
    )


def python_on(row: Row | Result) -> str:
    """The Python, and the platform and system that it starts on where not the machine's own."""
    others = [row.platform] if row.platform != HOME else []
    others += [row.system] if row.system != HOST else []
    return " on ".join([row.python, *others])


def plan(placed: Iterable[Placed]) -> RenderableType:
    """The rows to be; below them what is missing here, each thing once with its rows counted."""
    placed = tuple(placed)
    fields = ("torch", "python", "binding", "compiler", "cuda", "suite", "level", "tier")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for heading in (*fields, "here"):
        table.add_column(heading, no_wrap=heading != "python")
    for each in placed:
        row = each.row
        here = Text("no", style="yellow") if each.missing else Text("yes", style="green")
        known = {field: str(getattr(row, field)) for field in fields} | {"python": python_on(row)}
        table.add_row(*known.values(), here)
    missing = Counter(each.missing for each in placed if each.missing)
    reasons = [
        Text.assemble((f"not here: {count} x ", "yellow"), reason)
        for reason, count in missing.items()
    ]
    return Group(table, *reasons)
