"""The reliability campaigns of a project: what each did when its figures were last kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchproof.config import ROOT, ConfigError, project
from torchproof.files import read_json
from torchproof.rows.results import FAILED, NOT_RUN, PASSED

# A run's own figures come before the committed ones.
FOLDERS = ("build/campaigns", "docs/campaigns")


@dataclass(frozen=True)
class Campaign:
    """A campaign and its figures; None where none are kept.

    Attributes:
        name: of its record, docs/campaigns/NAME.json.
        date, commit, processor: of the run.
        seed: of its random choices; None where it makes none.
        minutes: its budget.
        cases: how many it tried; `unit`: what one is.
        findings, not_run: a sentence each.
        figures: anything else worth a number.
    """

    name: str
    date: str
    commit: str
    processor: str
    seed: int | None
    minutes: float
    cases: int
    unit: str
    findings: tuple[str, ...]
    not_run: tuple[str, ...]
    figures: dict[str, float]

    @property
    def status(self) -> str:
        """Whether it found nothing."""
        if self.findings:
            return FAILED
        return PASSED if self.cases else NOT_RUN


def read(file: Path) -> Campaign | None:
    """A campaign's figures; None where there are none."""
    value: dict[str, Any] | None = read_json(file)
    if value is None:
        return None
    try:
        name = value.pop("campaign")
        lists = {key: tuple(value[key]) for key in ("findings", "not_run")}
        return Campaign(name=name, **{**value, **lists})
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: is no record of a campaign ({error!r})") from error


def read_all(root: Path = ROOT) -> dict[str, Campaign | None]:
    """Every campaign that the project names, in its order."""
    found: dict[str, Campaign | None] = {}
    for name in project().campaigns:
        records = (read(root / folder / f"{name}.json") for folder in FOLDERS)
        found[name] = next((record for record in records if record), None)
    return found
