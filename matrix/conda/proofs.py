"""tests/conda, run against what was built and installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from matrix import config
from matrix.conda.processes import logged
from matrix.conda.results import FAILED, NOT_RUN, PASSED, ProofResult
from matrix.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.conda.install import Installed
    from matrix.conda.places import Place
    from matrix.conda.results import PackageResult
    from matrix.conda.session import Session

PROOFS = config.ROOT / "tests" / "conda"
# Names the file through which the proofs learn what was built and installed.
CONTEXT = "LLTM_CONDA_CONTEXT"
LIMIT_S = 1800.0


def write_context(
    this: Session, packages: Iterable[PackageResult], installed: Iterable[tuple[Place, Installed]]
) -> None:
    """Tell the proofs what there is."""
    write_json(
        this.folder / "context.json",
        {
            "channels": [str(folder) for folder in this.channels],
            "parts": str(this.channel.folder),
            "cache": str(this.cache),
            "variants": str(this.shop.variants),
            "packages": {package.name: package.file for package in packages},
            "environments": [
                {"prefix": str(environment.prefix), "torch": place.torch, "python": place.series}
                for place, environment in installed
            ],
        },
    )


def prove(this: Session) -> list[ProofResult]:
    """Run tests/conda against what was built and installed."""
    junit, log = this.folder / "work" / "proofs.xml", this.logs / "proofs.log"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # The suite's own conftest imports lltm, which is not installed here.
    command += [f"--confcutdir={PROOFS}", f"--junitxml={junit}", str(PROOFS)]
    context = {CONTEXT: str(this.folder / "context.json")}
    with this.steps.step("proofs: reproducible, relocatable, removable"):
        logged(command, log, cwd=config.ROOT, limit=LIMIT_S, env=context)
    return read_proofs(junit) or [ProofResult("tests/conda", FAILED, 0.0, f"see {log}")]


def read_proofs(junit: Path) -> list[ProofResult]:
    """Each test of the proofs, its name read as a sentence."""
    if not junit.is_file():
        return []
    found = []
    for case in ElementTree.parse(junit).iter("testcase"):
        broken = [*case.findall("failure"), *case.findall("error")]
        skip = case.find("skipped")
        status, why = PASSED, ""
        if broken:
            status, why = FAILED, " ".join((broken[0].get("message") or "").split())[:300]
        elif skip is not None:
            status, why = NOT_RUN, skip.get("message") or ""
        name = (case.get("name") or "").removeprefix("test_").replace("_", " ")
        found.append(ProofResult(name, status, float(case.get("time") or 0), why))
    return found
