"""Installs wheels, and tries them in environments."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from torchproof.audit import Verdict
from torchproof.config import series
from torchproof.grid import predict, second
from torchproof.grid.trials import ABORTS, NOT_RUN, GridCell, LibraryTrial, PackageTrial
from torchproof.grid.wheel_file import Wheel
from torchproof.machine.environments import Environment, Installer, torch_requirements
from torchproof.machine.processes import Processes, reason_in

LIMIT_S = 300.0
PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Installed:
    """A wheel in a folder of its own; `failure` says why it is not."""

    wheel: Wheel
    site: Path
    failure: str = ""


@dataclass(frozen=True)
class Prober:
    """Tries wheels; what it installs and its logs go below a folder."""

    processes: Processes
    installer: Installer
    folder: Path

    def install(self, wheel: Wheel, environment: Environment) -> Installed:
        """Put a wheel and what it requires beside that torch into a folder."""
        name = f"{wheel.name}-beside-torch{environment.torch}"
        site, log = self.folder / "sites" / name, self._log(name)
        shutil.rmtree(site, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        needs = torch_requirements(wheel.requires, environment.python, nvidia=False)
        with TemporaryDirectory() as folder:
            torch = _placeholder(Path(folder), environment.torch)
            steps = [["--no-deps", str(wheel.path)], [str(torch), *needs]]
            for what in steps if needs else steps[:1]:
                ended = self.processes.run(
                    self.installer.install(environment.program, "--target", str(site), *what),
                    log=log,
                    limit=LIMIT_S,
                    cwd=self.folder,
                    env=self.installer.env,
                )
                if not ended.ok:
                    failure = f"cannot be installed: {ended.explain(LIMIT_S)}{reason_in(log)}"
                    return Installed(wheel, site, failure)
        for metadata in site.glob("torch-*.dist-info"):
            shutil.rmtree(metadata)
        return Installed(wheel, site)

    def cell(self, installed: Installed, environment: Environment, torch: str) -> GridCell:
        """Predict one cell, then try it."""
        wheel = installed.wheel
        reports = predict.libraries(wheel, installed.site, environment)
        predicted, reason = predict.package(wheel, environment, reports)
        found = self._try(installed, list(reports), environment, torch)
        libraries = tuple(
            _library(installed.site, name, report.verdicts[0], came)
            for (name, report), came in zip(reports.items(), found["libraries"], strict=True)
        )
        outcome, message = found["package"]
        package = PackageTrial(predicted, reason, outcome, message, wheel.guarded)
        return GridCell(torch, libraries, package)

    def _try(
        self, installed: Installed, names: list[str], environment: Environment, torch: str
    ) -> dict[str, Any]:
        def everything(outcome: str, message: str) -> dict[str, Any]:
            return {"libraries": [(outcome, message)] * len(names), "package": (outcome, message)}

        if installed.failure:
            return everything(NOT_RUN, installed.failure)
        wheel, site = installed.wheel, installed.site
        log = self._log(f"{wheel.name}-in-torch{torch}")
        report = log.with_suffix(".json")
        for old in (log, report):
            old.unlink(missing_ok=True)
        work = {
            "report": str(report),
            "libraries": [str(predict.installed_path(site, name)) for name in names],
            "by_loader": wheel.by_loader,
            "package": wheel.package,
            "smoke": wheel.smoke,
        }
        ended = self.processes.run(
            [environment.program, PROBE, json.dumps(work)],
            log=log,
            limit=LIMIT_S,
            cwd=site,
            env={"PYTHONPATH": str(site)},
        )
        if not ended.ok:  # torch itself, or the limit
            return everything(ABORTS, f"{ended.explain(LIMIT_S)}; see {log}")
        text = report.read_text(encoding="utf-8")
        # A page of it says the same on every machine.
        for place in (site, environment.path):
            text = text.replace(f"{place}/", "")
        modules = Path("lib", f"python{series(environment.python)}")
        python = environment.program.resolve().parents[1]
        text = text.replace(f"{python / modules}/", f"{modules}/")
        found: dict[str, Any] = json.loads(text)
        return found

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"


def _placeholder(folder: Path, version: str) -> Path:
    """The wheel of a torch without a file: it keeps an installer from fetching one."""
    metadata = f"torch-{version}.dist-info"
    wheel = folder / f"torch-{version}-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name, text in (
            ("METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"{metadata}/{name}", text)
    return wheel


def _library(site: Path, name: str, verdict: Verdict, found: tuple[str, str]) -> LibraryTrial:
    opinion = second.opinion(predict.installed_path(site, name), verdict.torch)
    return LibraryTrial(verdict.outcome, verdict.reason, *found, name, opinion)
