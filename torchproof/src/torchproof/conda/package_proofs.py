"""The project's proofs of its packages, run against what was built and installed."""

import dataclasses
import sys
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchproof import config
from torchproof.conda.packages import Package
from torchproof.conda.session import Session
from torchproof.conda.solving import Solution
from torchproof.conda.suite import Wanted
from torchproof.conda.summary import ProofResult
from torchproof.conda.worker_pool import WorkerPool, done
from torchproof.files import read_sealed, source_hash, text_hash, write_json, write_sealed
from torchproof.machine.processes import Processes
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, read_cases

# Shown of a package's file alone, by building it again: not done twice for the same file.
OF_FILES = "test_reproducible.py"
# Shown from metadata alone; many cases each, so a row of the table is a file.
OF_METADATA = {
    "test_solver.py": "what the solver chooses beside torch, Python and driver",
    "test_render.py": "what the recipe renders to on every platform",
}
# Names the file through which the proofs learn what was built and installed.
CONTEXT = "TORCHPROOF_CONDA_CONTEXT"
LIMIT_S = 1800.0


def proofs() -> Path:
    """Where the project's proofs are."""
    return config.ROOT / config.project().conda.proofs


def write_context(
    session: Session,
    name: str,
    packages: Iterable[Package],
    solutions: Iterable[tuple[Wanted, Solution]] = (),
) -> Path:
    """Tell a run of the proofs what there is, in a file, and return that."""
    path = session.folder / "work" / f"proofs-{name}.json"
    write_json(
        path,
        {
            "channels": [str(folder) for folder in session.channels],
            "parts": str(session.channel.folder),
            "cache": str(session.cache),
            "variants": str(session.context.variants),
            "packages": [
                {
                    "name": package.output.name,
                    "build": package.output.build,
                    "file": str(package.built.path),
                }
                for package in packages
            ],
            "environments": [
                {
                    "specs": want.specs,
                    "torch": want.target.torch,
                    "python": want.target.series,
                    "driver": want.driver,
                    "build": solution.build(config.project().conda.stable),
                }
                for want, solution in solutions
            ],
        },
    )
    return path


@dataclass(frozen=True)
class Run:
    """A run of pytest, as a worker takes it.

    Attributes:
        name: of its log and its JUnit file.
        what: it shows.
        arguments: for pytest, the tests first.
        context: what there is, where they need it.
    """

    name: str
    what: str
    arguments: tuple[str, ...]
    folder: Path
    context: Path | None = None

    @property
    def step(self) -> str:
        """What it is shown as."""
        return f"proofs: {self.what}"

    def __call__(self) -> list[ProofResult]:
        """Every test of it."""
        junit = self.folder / "work" / f"proofs-{self.name}.xml"
        log = self.folder / "logs" / f"proofs-{self.name}.log"
        junit.unlink(missing_ok=True)
        junit.parent.mkdir(parents=True, exist_ok=True)
        tests = Path(self.arguments[0])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # The suite's own conftest may import the package, which is not installed here.
        command += [f"--confcutdir={tests if tests.is_dir() else tests.parent}"]
        command += [f"--junitxml={junit}", *self.arguments]
        context = {CONTEXT: str(self.context)} if self.context else {}
        log.unlink(missing_ok=True)
        ended = Processes().run(command, log=log, cwd=config.ROOT, limit=LIMIT_S, env=context)
        found = read_proofs(junit)
        if not found or not (ended.ok or any(proof.status == FAILED for proof in found)):
            return [
                *found,
                ProofResult(
                    f"{config.project().conda.proofs}: {self.what}", FAILED, 0.0, f"see {log}"
                ),
            ]
        return found


def prove_metadata(session: Session, workers: WorkerPool) -> list[Future[list[ProofResult]]]:
    """Run the project's tests that need nothing but the recipe."""
    runs = [
        Run(Path(name).stem, what, (str(proofs() / name),), session.folder)
        for name, what in OF_METADATA.items()
        if (proofs() / name).is_file()
    ]
    return [workers.submit(run.step, partial(_summed, run)) for run in runs]


def prove_reproducible(
    session: Session, workers: WorkerPool, package: Package
) -> Future[list[ProofResult]]:
    """Build a package again, if the project has a proof of that; kept is what the file showed."""
    if not (proofs() / OF_FILES).is_file():
        return done([])
    context = write_context(session, "files", [package])
    run = Run("files", "reproducible", (str(proofs() / OF_FILES),), session.folder, context)
    record = session.folder / "work" / "proofs-kept.json"
    key = text_hash(package.sha256, session.channel.key, source_hash(config.project().conda.proofs))
    known = read_sealed(record)
    if known and known["key"] == key:
        return done([ProofResult(**row | {"kept": True}) for row in known["proofs"]])
    record.unlink(missing_ok=True)
    return workers.submit(run.step, partial(_recorded, run, record, key))


def prove_installation(
    session: Session,
    workers: WorkerPool,
    packages: Iterable[Package],
    solutions: Iterable[tuple[Wanted, Solution]],
) -> Future[list[ProofResult]]:
    """Run the rest of the proofs against all that was built and solved."""
    if not config.project().conda.proofs:
        return done([])
    what = "relocatable, removable, no trace"
    others = (f"--ignore={proofs() / name}" for name in (OF_FILES, *OF_METADATA))
    arguments = (str(proofs()), *others)
    context = write_context(session, "installation", packages, solutions)
    run = Run("installation", what, arguments, session.folder, context)
    return workers.submit(run.step, run)


def _recorded(run: Run, record: Path, key: str) -> list[ProofResult]:
    shown = run()
    if all(proof.status == PASSED for proof in shown):
        write_sealed(record, {"key": key, "proofs": [dataclasses.asdict(p) for p in shown]})
    return shown


def _summed(run: Run) -> list[ProofResult]:
    return [summed(run.what, run())]


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
    return [
        ProofResult(
            case.name.removeprefix("test_").replace("_", " "),
            case.status,
            case.seconds,
            case.reason,
        )
        for case in read_cases(junit) or ()
    ]
