"""tests/conda, run against what was built and installed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from matrix import config
from matrix.conda.processes import logged
from matrix.conda.results import FAILED, NOT_RUN, PASSED, ProofResult
from matrix.files import read_json, source_hash, text_hash, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.conda.install import Installed
    from matrix.conda.results import PackageResult
    from matrix.conda.session import Session
    from matrix.conda.suite import Wanted

PROOFS = config.ROOT / "tests" / "conda"
METADATA = config.ROOT / "tests" / "matrix"
# Shown of the packages' files alone, by building one again: not done twice for the same files.
OF_FILES = "test_reproducible.py"
# Shown from metadata alone; many cases each, so a row of the table is a file.
OF_METADATA = {
    "test_conda_solver.py": "what the solver chooses beside torch, Python and driver",
    "test_conda_render.py": "what the recipe renders to on every platform",
}
# Names the file through which the proofs learn what was built and installed.
CONTEXT = "LLTM_CONDA_CONTEXT"
LIMIT_S = 1800.0


def write_context(
    this: Session, packages: Iterable[PackageResult], installed: Iterable[tuple[Wanted, Installed]]
) -> None:
    """Tell the proofs what there is."""
    write_json(
        this.folder / "context.json",
        {
            "channels": [str(folder) for folder in this.channels],
            "parts": str(this.channel.folder),
            "cache": str(this.cache),
            "variants": str(this.shop.variants),
            "packages": [
                {"name": package.name, "build": package.build, "file": package.file}
                for package in packages
            ],
            "environments": [
                {
                    "prefix": str(environment.prefix),
                    "torch": want.place.torch,
                    "python": want.place.series,
                    "driver": want.driver,
                    "lltm": environment.solution.build("lltm"),
                }
                for want, environment in installed
            ],
        },
    )


def prove(this: Session, packages: Iterable[PackageResult]) -> list[ProofResult]:
    """Run tests/conda against what was built and installed; kept is what the same files showed."""
    ignored = f"--ignore={PROOFS / OF_FILES}"
    found = [
        *(
            summed(what, _pytest(this, Path(name).stem, what, METADATA / name))
            for name, what in OF_METADATA.items()
        ),
        *_pytest(this, "installation", "relocatable, removable, no trace", PROOFS, ignored),
    ]
    record = this.folder / "work" / "proofs.json"
    key = text_hash(*(p.sha256 for p in packages), this.channel.key, source_hash("tests/conda"))
    known = read_json(record)
    if known and known["key"] == key:
        return [*found, *(ProofResult(**row | {"kept": True}) for row in known["proofs"])]
    record.unlink(missing_ok=True)
    shown = _pytest(this, "files", "reproducible", PROOFS / OF_FILES)
    if all(proof.status == PASSED for proof in shown):
        write_json(record, {"key": key, "proofs": [dataclasses.asdict(p) for p in shown]})
    return [*found, *shown]


def _pytest(this: Session, name: str, what: str, tests: Path, *arguments: str) -> list[ProofResult]:
    junit, log = this.folder / "work" / f"proofs-{name}.xml", this.logs / f"proofs-{name}.log"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # The suite's own conftest imports lltm, which is not installed here.
    command += [f"--confcutdir={tests if tests.is_dir() else tests.parent}"]
    command += [f"--junitxml={junit}", str(tests), *arguments]
    context = {CONTEXT: str(this.folder / "context.json")}
    with this.steps.step(f"proofs: {what}"):
        code = logged(command, log, cwd=config.ROOT, limit=LIMIT_S, env=context)
    found = read_proofs(junit)
    if not found or (code and not any(proof.status == FAILED for proof in found)):
        return [*found, ProofResult(f"tests/conda: {what}", FAILED, 0.0, f"see {log}")]
    return found


def summed(what: str, proofs: list[ProofResult]) -> ProofResult:
    """Many cases as one property: passed when all have, not run when none has."""
    seconds = sum(proof.seconds for proof in proofs)
    name = f"{what}: {len(proofs)} cases"
    for proof in proofs:
        if proof.status == FAILED:
            return ProofResult(name, FAILED, seconds, f"{proof.name}: {proof.reason}")
    left = [proof for proof in proofs if proof.status == NOT_RUN]
    if left:
        return ProofResult(name, NOT_RUN, seconds, f"{len(left)} cases: {left[0].reason}")
    return ProofResult(name, PASSED, seconds)


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
