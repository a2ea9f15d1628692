"""The page's table of processors: those of this run, and those that docs/proofs knows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from torchproof.machine.processor import from_json
from torchproof.report import proofs
from torchproof.report.proofs import Record
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, Result


def title(result: Result) -> str:
    """The processor that a row ran on, or was to run on."""
    return str(result.processor["title"]) if result.processor else "processor not known"


@dataclass(frozen=True)
class LevelCount:
    """Of the rows at a level: how many passed, how many there are; `status` as all of them have."""

    status: str
    passed: int
    rows: int


@dataclass(frozen=True)
class ProcessorLine:
    """A processor that rows of this run, or records, are of.

    Attributes:
        title: its kind.
        details, caches, instruction_sets: what else is known of it, in words.
        levels: of this run, by name.
        in_use: what each library reported at each level.
        tiers: the recorded proof of each tier; None where there is none.
    """

    title: str
    details: str
    caches: str
    instruction_sets: str
    levels: dict[str, LevelCount]
    in_use: dict[str, dict[str, str | None]]
    tiers: dict[str, proofs.Proof | None]


def processors(results: Iterable[Result], kept: Iterable[Record]) -> list[ProcessorLine]:
    """Those of this run first, then those that only records know."""
    rows = [result for result in results if result.processor]
    records = {record.processor.title: record for record in kept}
    known = {title(row): from_json(row.processor) for row in rows if row.processor}
    known |= {name: r.processor for name, r in records.items() if name not in known}
    return [
        ProcessorLine(
            title=name,
            details=of.details,
            caches=of.cache_sizes or "not reported",
            instruction_sets=", ".join(of.instruction_sets) or "not reported",
            levels=_levels([row for row in rows if title(row) == name]),
            in_use=(records[name].in_use if name in records else {})
            | {row.level: row.in_use for row in rows if title(row) == name and row.in_use},
            tiers={
                tier: records[name].tiers.get(tier) if name in records else None
                for tier in proofs.TIERS
            },
        )
        for name, of in known.items()
    ]


def _levels(rows: list[Result]) -> dict[str, LevelCount]:
    """By level: failed if a row failed, passed if all that ran passed."""
    found: dict[str, LevelCount] = {}
    for level in dict.fromkeys(row.level for row in rows):
        statuses = Counter(row.status for row in rows if row.level == level)
        worst = next(status for status in (FAILED, PASSED, NOT_RUN) if statuses[status])
        found[level] = LevelCount(worst, statuses[PASSED], statuses.total())
    return found
