"""The reliability campaigns of a project: what each did when its figures were last kept."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from torchproof.config import ROOT, ConfigError, project
from torchproof.files import kernels_hash, read_json
from torchproof.rows.progress import STYLES
from torchproof.rows.results import FAILED, NOT_RUN, PASSED

# A run's own figures come before the committed ones.
FOLDERS = ("build/campaigns", "docs/campaigns")
NOT_PROVEN = "planted bugs: not proven"


@dataclass(frozen=True)
class Proof:
    """How many bugs were planted for a campaign to find, how many it found, and when."""

    planted: int
    found: int
    date: str
    commit: str

    @property
    def status(self) -> str:
        """Whether it found every one."""
        if not self.planted:
            return NOT_RUN
        return PASSED if self.found == self.planted else FAILED


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
        kernels: the hash of what computed then; empty where it was not kept.
        proven: what it found of the bugs that were planted for it; None where that is not known.
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
    kernels: str = ""
    proven: Proof | None = None

    @property
    def status(self) -> str:
        """Whether it found nothing."""
        if self.findings:
            return FAILED
        return PASSED if self.cases else NOT_RUN

    @property
    def current(self) -> bool:
        """Whether it ran with the present kernels."""
        return self.kernels == kernels_hash()

    def to_json(self) -> dict[str, Any]:
        """What report.json has of it."""
        return {**asdict(self), "status": self.status, "current": self.current}


def read(file: Path, proven: Proof | None = None) -> Campaign | None:
    """A campaign's figures, beside what proves it; None where there are none."""
    value: dict[str, Any] | None = read_json(file)
    if value is None:
        return None
    try:
        name = value.pop("campaign")
        lists = {key: tuple(value[key]) for key in ("findings", "not_run")}
        return Campaign(name=name, proven=proven, **{**value, **lists})
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: is no record of a campaign ({error!r})") from error


def read_proof(file: Path) -> Proof | None:
    """What a campaign found of planted bugs; None where it is not kept."""
    value: dict[str, Any] | None = read_json(file)
    if value is None:
        return None
    try:
        return Proof(**{field.name: value[field.name] for field in fields(Proof)})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{file}: is no record of planted bugs ({error!r})") from error


def read_all(root: Path = ROOT) -> dict[str, Campaign | None]:
    """Every campaign that the project names, in its order."""
    found: dict[str, Campaign | None] = {}
    for name in project().campaigns:
        folders = [root / folder for folder in FOLDERS]
        proofs = (read_proof(folder / "proven" / f"{name}.json") for folder in folders)
        proven = next((proof for proof in proofs if proof), None)
        records = (read(folder / f"{name}.json", proven) for folder in folders)
        found[name] = next((record for record in records if record), None)
    return found


def to_json() -> list[dict[str, Any]]:
    """Every campaign that the project names, for report.json."""
    return [
        found.to_json() if found else {"name": name, "status": NOT_RUN, "reason": missing(name)}
        for name, found in read_all().items()
    ]


def missing(name: str) -> str:
    """Why a campaign without figures counts as not run."""
    return f"there is no {FOLDERS[-1]}/{name}.json"


def summary() -> RenderableType:
    """A sentence a campaign for the terminal, which a narrow one breaks between words."""
    return Group(*(_sentence(name, found) for name, found in read_all().items()))


def _sentence(name: str, found: Campaign | None) -> Text:
    status = found.status if found else NOT_RUN
    said = f", {_told(found)}" if found else f": {missing(name)}"
    return Text.assemble(f"{name}: ", (status, STYLES[status]), said)


def _told(campaign: Campaign) -> str:
    proven = campaign.proven
    seed = () if campaign.seed is None else (f"seed {campaign.seed}",)
    age = () if campaign.current else ("older than the kernels",)
    found = len(campaign.findings)
    tried = f"{campaign.cases} {campaign.unit}", f"{found} finding{'s' * (found != 1)}"
    parts = (
        ", ".join((*tried, *seed, campaign.date, *age, campaign.processor)),
        f"{proven.found} of {proven.planted} planted bugs found" if proven else NOT_PROVEN,
        ", ".join(f"{what}: {value}" for what, value in campaign.figures.items()),
    )
    return "; ".join(filter(None, parts))
