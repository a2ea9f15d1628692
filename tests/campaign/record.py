"""What a campaign did, and which planted bugs it found: JSON files that the report shows."""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchproof.files import kernels_hash, write_json
from torchproof.machine import processor

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "campaigns"
COMMITTED = ROOT / "docs" / "campaigns"


@dataclass(frozen=True)
class Record:
    """A campaign's figures.

    Attributes:
        campaign: the nox session.
        seed: of its random choices; None where it makes none.
        minutes: its budget.
        cases: how many it tried; `unit`: what one is.
        findings: what it found, a sentence each.
        not_run: what it could not do, or had no time for, with the reason.
        figures: anything else worth a number.
    """

    campaign: str
    seed: int | None
    minutes: float
    cases: int
    unit: str
    findings: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)

    def write(self, *, commit: bool) -> Path:
        """Write it below build, and where it is committed from if asked to."""
        document = {
            **asdict(self),
            "date": _today(),
            "processor": processor.read().title,
            "commit": _commit(),
            "kernels": kernels_hash(),
        }
        return _write(f"{self.campaign}.json", document, commit=commit)


@dataclass(frozen=True)
class Proof:
    """How many bugs were planted for a campaign, and how many of them it found."""

    campaign: str
    planted: int
    found: int

    @property
    def exit_status(self) -> int:
        """0 where it found every one."""
        return 0 if self.found == self.planted > 0 else 1

    def write(self, *, commit: bool) -> Path:
        """Write it beside the campaign's record, with the date and the commit."""
        document = {**asdict(self), "date": _today(), "commit": _commit()}
        return _write(f"proven/{self.campaign}.json", document, commit=commit)


def _write(name: str, document: dict[str, Any], *, commit: bool) -> Path:
    folders = (BUILT, COMMITTED) if commit else (BUILT,)
    for folder in folders:
        write_json(folder / name, document)
    return folders[-1] / name


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
