"""Environments as `conda install` makes them, and the suite of the tests' package run in them."""

import dataclasses
import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchproof.conda.install import ENVIRONMENT, Installed, install
from torchproof.conda.package_checks import driver_override
from torchproof.conda.session import Session
from torchproof.conda.solving import Solution, solve
from torchproof.conda.summary import EnvironmentResult
from torchproof.conda.targets import Target
from torchproof.conda.worker_pool import WorkerPool
from torchproof.config import Suite, project
from torchproof.files import read_sealed, text_hash, tool_hash, write_sealed
from torchproof.machine.processes import Processes
from torchproof.rows.results import FAILED, PASSED, Counts, read_junit

# As matrix.toml may call them, see wanted().
FULL, CORE, VALUES = ("slow", "quick"), "core", "values"


@dataclass(frozen=True)
class Wanted:
    """An environment to make.

    Attributes:
        target: a CPython of this machine and a torch.
        driver: the CUDA release of the GPU driver it is solved for; None for what the machine has.
        suite: what is run in it, as matrix.toml calls it.
    """

    target: Target
    driver: str | None
    suite: str

    @property
    def tag(self) -> str:
        """A name for files."""
        name = f"{self.target.tag}-{self.suite}"
        return f"{name}-cuda" if self.driver else name

    @property
    def label(self) -> str:
        """A name for tables."""
        if self.driver is None:
            return self.target.label
        return f"{self.target.label}, CUDA package on the CPU"

    @property
    def specs(self) -> list[str]:
        """What is asked for."""
        beside = [f"pytorch {self.target.torch}.*", f"python {self.target.series}.*"]
        return [project().conda.stable, project().conda.tests, *beside]


def wanted(session: Session) -> tuple[Wanted, ...]:
    """The full suite where users meet the package, in two environments, its core elsewhere.

    The CUDA package holds the same kernels for the CPU: its values are compared once more. A matrix
    without suites of these names has its first for the full one, and its last for the others.
    """
    suites = [suite.name for suite in session.matrix.suites]
    full = [name for name in FULL if name in suites] or suites[:1]
    core, values = (name if name in suites else suites[-1] for name in (CORE, VALUES))
    first, *others = session.targets
    found = [Wanted(first, None, name) for name in full]
    found += [Wanted(target, None, core) for target in others]
    if session.cuda is not None:
        found.append(Wanted(others[-1], session.cuda, values))
    return tuple(found)


@dataclass(frozen=True)
class Trial:
    """An environment to install and what to run in it, as a worker takes it.

    Attributes:
        key: one hash over the packages of the environment and what is run.
        kept: what was shown in an earlier run by the same key.
    """

    want: Wanted
    suite: Suite
    channels: tuple[Path, ...]
    prefix: Path
    cache: Path
    work: Path
    logs: Path
    key: str
    kept: EnvironmentResult | None

    @property
    def record(self) -> Path:
        """What is known of it."""
        return self.work.with_suffix(".json")


def solve_for(session: Session, want: Wanted) -> Solution:
    """The packages that `conda install` takes there.

    Raises:
        Unsolvable: there is no such environment.
    """
    with driver_override(want.driver):
        return solve(session.channels, want.specs)


def test_environment(
    session: Session, workers: WorkerPool, want: Wanted, solution: Solution
) -> Future[EnvironmentResult]:
    """Install as `conda install` does, and run a suite from the installed package.

    Kept is what passed on the same packages: they are installed, and not tested again.
    """
    suite = session.matrix.suite(want.suite)
    work = session.folder / "work" / want.tag
    how = tool_hash("conda/suite.py", "conda/install.py")
    key = text_hash(solution.key, *suite.paths, *suite.arguments, how)
    known = read_sealed(work.with_suffix(".json"))
    kept = None
    what = f"install, the {suite.name} suite"
    if known and known["key"] == key:
        kept = EnvironmentResult(**known["result"] | {"kept": True})
        what = f"install; the {suite.name} suite is kept, the packages are the same"
    trial = Trial(
        want=want,
        suite=suite,
        channels=session.channels,
        prefix=session.folder / "environments" / want.tag,
        cache=session.cache,
        work=work,
        logs=session.logs,
        key=key,
        kept=kept,
    )
    return workers.submit(f"{want.label}: {what}", partial(_try, trial))


def _try(trial: Trial) -> EnvironmentResult:
    shutil.rmtree(trial.prefix, ignore_errors=True)
    with driver_override(trial.want.driver):
        installed = install(trial.channels, trial.want.specs, trial.prefix, trial.cache)
    if trial.kept is not None:
        return dataclasses.replace(
            trial.kept, solve_seconds=installed.solution.seconds, install_seconds=installed.seconds
        )
    trial.record.unlink(missing_ok=True)
    result = run_suite(trial, installed)
    # One that failed is run again the next time.
    if result.status == PASSED:
        write_sealed(trial.record, {"key": trial.key, "result": dataclasses.asdict(result)})
    return result


def run_suite(trial: Trial, installed: Installed) -> EnvironmentResult:
    """Run a suite in its environment, as nothing is known of it yet."""
    want, suite, work = trial.want, trial.suite, trial.work
    home = installed.prefix / "share" / project().name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    junit, log = work / "junit.xml", trial.logs / f"suite-{want.tag}.log"
    command = ["python", "-m", "pytest", "-c", str(home / "pyproject.toml"), "-q"]
    command += ["-o", f"cache_dir={work}/cache", "-o", "junit_family=xunit1"]
    command += [f"--junitxml={junit}", *suite.arguments]
    command += [str(home / path) for path in suite.paths]
    limit = 60.0 * suite.minutes
    log.unlink(missing_ok=True)
    ended = Processes().run(
        installed.activated(*command), log=log, cwd=work, limit=limit, env=ENVIRONMENT
    )
    counts = read_junit(junit)
    status, reason = _verdict("" if ended.ok else ended.explain(limit), counts, log)
    return EnvironmentResult(
        name=want.label,
        torch=want.target.torch,
        python=want.target.python.version,
        suite=suite.name,
        build=installed.solution.build(project().conda.stable),
        packages=len(installed.records),
        solve_seconds=installed.solution.seconds,
        install_seconds=installed.seconds,
        test_seconds=ended.seconds,
        passed=counts.passed if counts else 0,
        failed=counts.failed if counts else 0,
        skipped=counts.skipped if counts else 0,
        status=status,
        reason=reason,
    )


def _verdict(trouble: str, counts: Counts | None, log: Path) -> tuple[str, str]:
    if counts is None:
        return FAILED, f"pytest: {trouble}, before it had a result; see {log.name}"
    if counts.failed:
        return FAILED, counts.failures[0]
    if trouble or not counts.passed:
        how = trouble or "exit status 0"
        return FAILED, f"pytest: {how}, {counts.passed} tests passed; see {log.name}"
    return PASSED, ""
