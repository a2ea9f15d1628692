"""What a campaign did: a JSON, which the report page shows once it is in docs/campaigns."""

from __future__ import annotations

import datetime
import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

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
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "processor": processor(),
            "commit": _commit(),
        }
        text = json.dumps(document, indent=1) + "\n"
        folders = (BUILT, COMMITTED) if commit else (BUILT,)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.campaign}.json").write_text(text, encoding="utf-8")
        return folders[-1] / f"{self.campaign}.json"


def processor() -> str:
    """This machine's processor, as every report names it."""
    spec = importlib.util.spec_from_file_location("_processor", ROOT / "lltm" / "_processor.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return str(module.read().title)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
