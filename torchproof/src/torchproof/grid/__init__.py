"""Wheels into torches: what the audit predicts, and what happens when each is loaded.

For wheels that anybody built. A wheel is installed with what it requires, but for torch, into a
folder of its own for each torch, and its smoke program runs there in a process of its own.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchproof.audit import ArtifactError, audit
from torchproof.errors import TorchproofError
from torchproof.machine.environments import torch_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchproof.machine.environments import Environment, Installer
    from torchproof.machine.processes import Processes

LOADS, REFUSES, ABORTS, WRONG = "loads", "refuses", "aborts", "loads but wrong"
FAILS, UNSAFE, NOT_RUN = "fails", "unsafe", "not run"
# What has to happen for a prediction to be right. A package may catch that its library does not
# load, and then lack its ops; what is unsafe may do anything.
MEANT = {LOADS: {LOADS}, FAILS: {REFUSES, WRONG}, UNSAFE: {LOADS, REFUSES, ABORTS, WRONG}}
# From the best to the worst: a wheel does what the worst of its libraries does.
SEVERITY = (LOADS, UNSAFE, FAILS)
LIMIT_S = 300.0
PROBE = Path(__file__).with_name("probe.py")


class GridError(TorchproofError):
    """A wheel that cannot be tried."""


@dataclass(frozen=True)
class Wheel:
    """A wheel file, what it requires beside torch, and the program that uses it."""

    path: Path
    requires: tuple[str, ...]
    smoke: str

    @property
    def name(self) -> str:
        """Its file's name without the ending."""
        return self.path.stem


@dataclass(frozen=True)
class Outcome:
    """What happened, and what was reported."""

    outcome: str
    reason: str


@dataclass(frozen=True)
class GridCell:
    """One wheel in one torch."""

    wheel: str
    torch: str
    predicted: str
    reason: str
    found: Outcome

    @property
    def as_predicted(self) -> bool:
        """Whether the prediction was right; true of a cell that was not run."""
        return self.found.outcome == NOT_RUN or self.found.outcome in MEANT[self.predicted]


def read_wheel(path: Path, smoke: str | None) -> Wheel:
    """A wheel file, by default with `import NAME` of its first top-level package as its program.

    Raises:
        GridError: the file is no wheel.
    """
    try:
        parse_wheel_filename(path.name)
        with ZipFile(path) as archive:
            names = archive.namelist()
            (metadata,) = (n for n in names if n.count("/") == 1 and n.endswith("/METADATA"))
            headers = HeaderParser().parsestr(archive.read(metadata).decode())
    except FileNotFoundError as error:
        raise GridError(f"{path} does not exist; name a wheel, *.whl") from error
    except (InvalidWheelFilename, BadZipFile, ValueError) as error:
        raise GridError(f"{path} is no wheel: {error}; name one, *.whl") from error
    packages = [name.split("/")[0] for name in names if name.endswith("/__init__.py")]
    if smoke is None and not packages:
        raise GridError(f"{path.name} holds no package to import: say what to run with --smoke")
    lines = headers.get_all("Requires-Dist") or []
    wanted = tuple(line for line in lines if Requirement(line).name != "torch")
    return Wheel(path, wanted, smoke or f"import {min(packages, key=packages.index)}")


def predict(wheel: Path, environment: Environment) -> tuple[str, str]:
    """The worst verdict on a wheel's libraries in a torch, and its reason."""
    try:
        report = audit(wheel, against=[environment.site_packages])
    except ArtifactError as error:
        if "no ELF" in str(error):
            return LOADS, "it holds no library"
        raise GridError(str(error)) from error
    verdicts = [(v.outcome, v.reason) for library in report.libraries for v in library.verdicts]
    if not verdicts:
        return LOADS, "none of its libraries needs torch"
    return max(verdicts, key=lambda verdict: SEVERITY.index(verdict[0]))


@dataclass(frozen=True)
class Prober:
    """Tries wheels in environments."""

    processes: Processes
    installer: Installer
    folder: Path

    def cell(self, wheel: Wheel, environment: Environment, torch: str) -> GridCell:
        """Predict one cell, then load the wheel."""
        predicted, reason = predict(wheel.path, environment)
        return GridCell(wheel.name, torch, predicted, reason, self._load(wheel, environment, torch))

    def _load(self, wheel: Wheel, environment: Environment, torch: str) -> Outcome:
        site = self.folder / "sites" / f"{wheel.name}-in-torch{torch}"
        log = self.folder / "logs" / f"{site.name}.log"
        shutil.rmtree(site, ignore_errors=True)
        log.unlink(missing_ok=True)
        needs = torch_requirements(wheel.requires, environment.python, nvidia=False)
        for what in (["--no-deps", str(wheel.path)], needs):
            if what and (failed := self._install(environment, site, what, log)):
                return Outcome(NOT_RUN, f"cannot be installed: {failed}; see {log}")
        ended = self.processes.run(
            [environment.program, PROBE, wheel.smoke],
            log=log,
            limit=LIMIT_S,
            cwd=site,
            env={"PYTHONPATH": str(site)},
        )
        if not ended.ok:
            return Outcome(ABORTS, ended.explain(LIMIT_S))
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1]
        return Outcome(**json.loads(last))

    def _install(
        self, environment: Environment, site: Path, what: Iterable[str], log: Path
    ) -> str | None:
        """Install into a folder; how that failed, if it did."""
        ended = self.processes.run(
            self.installer.install(environment.program, "--target", str(site), *what),
            log=log,
            limit=LIMIT_S,
            cwd=self.folder,
            env=self.installer.env,
        )
        return None if ended.ok else ended.explain(LIMIT_S)


def markdown(cells: Iterable[GridCell]) -> str:
    """A line a wheel, a column a torch; a cell that was not predicted says what was."""
    cells = tuple(cells)
    torches = list(dict.fromkeys(cell.torch for cell in cells))
    rows: dict[str, dict[str, GridCell]] = {}
    for cell in cells:
        rows.setdefault(cell.wheel, {})[cell.torch] = cell
    lines = [f"| wheel | {' | '.join(torches)} |", f"|---|{'---|' * len(torches)}"]
    for name, row in rows.items():
        lines.append(f"| `{name}` | {' | '.join(_words(row[torch]) for torch in torches)} |")
    return "\n".join(lines) + "\n"


def _words(cell: GridCell) -> str:
    if not cell.as_predicted:
        return f"**{cell.found.outcome}, predicted {cell.predicted}**"
    return f"{cell.found.outcome} (unsafe)" if cell.predicted == UNSAFE else cell.found.outcome
