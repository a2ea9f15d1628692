"""Every wheel into every torch: what the audit predicts, and what then happens.

Each cell is tried twice, each time in a process of its own: through the package, whose judgement
must come before the loader's, and through the bare loader, which shows what the judgement is for.
"""

from __future__ import annotations

import torchproof.interrupts  # noqa: F401 - before the imports that are slow

# isort: split
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof.audit.audit import audit
from torchproof.config import ROOT, project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchproof.machine.environments import Environment
    from torchproof.machine.processes import Processes

PROBE = Path(__file__).with_name("probe.py")
LIMIT_S = 120.0
LOADS, REFUSES, ABORTS, WRONG = "loads", "refuses", "aborts", "loads but wrong"


@dataclass(frozen=True)
class Outcome:
    """What came of one try, and what it said."""

    outcome: str
    said: str


@dataclass(frozen=True)
class Wheel:
    """A wheel, the torch it was built on, and the folder it is unpacked into."""

    name: str
    binding: str
    torch: str
    sha256: str
    path: Path
    site: Path

    @property
    def library(self) -> Path:
        """Its one shared library."""
        return self.site / project().library


@dataclass(frozen=True)
class GridCell:
    """One wheel under one torch. `predicted` is the audit's verdict: loads, fails or unsafe."""

    torch: str
    predicted: str
    reason: str
    package: Outcome
    loader: Outcome

    @property
    def as_predicted(self) -> bool:
        """Whether the package and the bare loader did what the audit's verdict means.

        loads: both load and compute the right result. fails: both refuse. unsafe: the package
        refuses, and the loader does not, which is why it is unsafe.
        """
        package, loader = self.package.outcome, self.loader.outcome
        if self.predicted == LOADS:
            return (package, loader) == (LOADS, LOADS)
        if self.predicted == "fails":
            return (package, loader) == (REFUSES, REFUSES)
        return package == REFUSES and loader != REFUSES


def predict(wheel: Wheel, environment: Environment) -> tuple[str, str]:
    """The audit's verdict on a wheel's library in a torch, and its reason."""
    (library,) = audit(wheel.path, against=[environment.site_packages]).libraries
    (verdict,) = library.verdicts
    return verdict.outcome, verdict.reason


@dataclass(frozen=True)
class Prober:
    """Tries wheels in environments; the probe's words go to a log a cell."""

    processes: Processes
    folder: Path

    def cell(self, wheel: Wheel, environment: Environment, torch: str) -> GridCell:
        """Predict one cell, then try it."""
        predicted, reason = predict(wheel, environment)
        name = f"{wheel.name}-in-torch{torch}"
        return GridCell(
            torch=torch,
            predicted=predicted,
            reason=reason,
            package=self._try(
                environment,
                f"{name}-package",
                ["package", project().name],
                {"PYTHONPATH": str(wheel.site)},
            ),
            loader=self._try(environment, f"{name}-loader", ["loader", str(wheel.library)], {}),
        )

    def _try(
        self, environment: Environment, name: str, arguments: list[str], env: Mapping[str, str]
    ) -> Outcome:
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        ended = self.processes.run(
            [environment.program, PROBE, *arguments, ROOT / project().smoke],
            log=log,
            limit=LIMIT_S,
            cwd=environment.path,
            env=env,
        )
        if not ended.ok:
            return Outcome(ABORTS, ended.explain(LIMIT_S))
        told = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        return Outcome(**told)
