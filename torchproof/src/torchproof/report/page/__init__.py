"""The report as one page a person reads: no network, no file beside it needed."""

import datetime
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from torchproof.config import HOME, HOST, load, number, project
from torchproof.files import read_end, read_sealed
from torchproof.report import campaigns
from torchproof.report.page import plots
from torchproof.report.page.processors import processors, title
from torchproof.report.proofs import Record
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, Result

HERE = Path(__file__).parent
LOG_LINES = 60
# The page holds the end of every log; a row with very long lines must not make it heavy.
LOG_CHARACTERS = 12_000
STATUSES = (PASSED, FAILED, NOT_RUN)
MARKS = {PASSED: "✓", FAILED: "✗", NOT_RUN: "○"}
# A project's own page of benchmarks, from the folder of the matrix's report.
BENCHMARK = "../bench/index.html"
PHASES = ("environment", "build", "install", "audit", "load", "tests", "speed")


@dataclass(frozen=True)
class Log:
    """The end of a phase's log, and where the whole of it lies."""

    phase: str
    path: str
    tail: str


def logs(folder: Path, result: Result) -> list[Log]:
    """A row's logs in the order of its phases."""
    found = []
    for phase in PHASES:
        if phase in result.logs:
            path = folder / result.logs[phase]
            # A character has four bytes at most.
            end = read_end(path, 4 * LOG_CHARACTERS) if path.is_file() else b""
            lines = end.decode(errors="replace").splitlines()[-LOG_LINES:]
            tail = "\n".join(lines)[-LOG_CHARACTERS:]
            found.append(Log(phase, result.logs[phase], tail))
    return found


@dataclass(frozen=True)
class GridLine:
    """The results on one torch, platform, processor and level, by Python."""

    torch: str
    platform: str
    processor: str
    level: str
    emulator: str
    by_python: dict[str, list[Result]]

    @property
    def ran_on(self) -> str:
        """The processor, and what it was held to or emulated by."""
        if self.emulator:
            own = self.processor.removesuffix(", emulated")
            processor = own if self.level == HOST else self.level
            return f"{processor}, emulated by {self.emulator}"
        return self.processor if self.level == HOST else f"{self.processor}, held to {self.level}"


def grid(results: Iterable[Result]) -> list[GridLine]:
    """Results by torch (newest first), platform, processor and level."""
    results = tuple(results)
    pythons = sorted({result.python for result in results}, key=number)
    found: dict[tuple[str, str, str, str, str], list[Result]] = {}
    for result in sorted(results, key=lambda r: number(r.torch), reverse=True):
        # A row that was not run yet has the processor of this machine, not of its platform.
        on = title(result) if result.in_use or result.platform == HOME else "not known"
        key = (result.torch, result.platform, on, result.level, result.emulator)
        found.setdefault(key, []).append(result)
    return [
        GridLine(*key, {python: [r for r in rows if r.python == python] for python in pythons})
        for key, rows in found.items()
    ]


def artifacts(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Every wheel once, with the rows it was proven in and its first audit."""
    found: dict[str, dict[str, Any]] = {}
    for result in results:
        if result.artifact is not None:
            entry = found.setdefault(
                result.artifact["sha256"], {**result.artifact, "rows": [], "audit": result.audit}
            )
            entry["rows"].append(result)
    return list(found.values())


def in_words(iso: str) -> str:
    """A moment of UTC that is written as ISO 8601, for a reader."""
    moment = datetime.datetime.fromisoformat(iso)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def environment(folder: Path = HERE) -> Environment:
    """The templates of a folder, which may include those of this one; a filter, `in_words`."""
    templates = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["in_words"] = in_words
    return templates


def render(
    folder: Path, tier: str, results: Iterable[Result], records: Iterable[Record] = ()
) -> str:
    """The page of a tier's rows, with the logs and the grid in a folder, and what records prove."""
    results = tuple(results)
    passed = [result for result in results if result.status == PASSED]
    return (
        environment()
        .get_template("page.html")
        .render(
            tier=tier,
            made=datetime.datetime.now(datetime.timezone.utc).isoformat(),
            results=results,
            counts=Counter(result.status for result in results),
            among_passed={
                "emulated": sum(bool(r.emulator) for r in passed),
                "with older kernels": sum(bool(r.reason) for r in passed),
            },
            statuses=STATUSES,
            marks=MARKS,
            grid=grid(results),
            processors=processors(results, records),
            artifacts=artifacts(results),
            logs={result.id: logs(folder, result) for result in results},
            oracle=plots.oracle(results),
            speed=plots.speed(results),
            project=project().name,
            external_checks=load().external_checks,
            # The grid of the project's own wheels, where there is one.
            crossload=read_sealed(folder / "grid.json"),
            campaigns=campaigns.read_all(),
            benchmark=BENCHMARK if (folder / BENCHMARK).is_file() else None,
        )
    )
