"""Environments as `conda install` makes them, and the suite of `lltm-tests` run in them."""

from __future__ import annotations

import dataclasses
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.conda.install import ENVIRONMENT, Installed, install
from matrix.conda.packages import driver_override
from matrix.conda.processes import logged
from matrix.conda.results import FAILED, PASSED, EnvironmentResult
from matrix.files import read_json, source_hash, text_hash, write_json
from matrix.results import Counts, read_junit

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.conda.places import Place
    from matrix.conda.session import Session


@dataclass(frozen=True)
class Wanted:
    """An environment to make.

    Attributes:
        place: a CPython of this machine and a torch.
        driver: the CUDA release of the GPU driver it is solved for; None for what the machine has.
        suite: what is run in it, as matrix.toml calls it.
    """

    place: Place
    driver: str | None
    suite: str

    @property
    def tag(self) -> str:
        """A name for files."""
        return f"{self.place.tag}-cuda" if self.driver else self.place.tag

    @property
    def label(self) -> str:
        """A name for tables."""
        if self.driver is None:
            return self.place.label
        return f"{self.place.label}, CUDA package on the CPU"


def wanted(this: Session) -> tuple[Wanted, ...]:
    """The full suite where users meet the package, its core elsewhere and on the CUDA package."""
    first, *others = this.places
    found = [Wanted(first, None, "full"), *(Wanted(place, None, "core") for place in others)]
    if this.cuda is not None:
        found.append(Wanted(others[-1], this.cuda, "core"))
    return tuple(found)


def make_environment(this: Session, want: Wanted) -> Installed:
    """A fresh prefix with lltm, as `conda install` makes it."""
    place, prefix = want.place, this.folder / "environments" / want.tag
    shutil.rmtree(prefix, ignore_errors=True)
    specs = ["lltm", "lltm-tests", f"pytorch {place.torch}.*", f"python {place.series}.*"]
    with this.steps.step(f"install beside {want.label}"), driver_override(want.driver):
        return install(this.channels, specs, prefix, this.cache)


def test_environment(this: Session, want: Wanted, installed: Installed) -> EnvironmentResult:
    """Run a suite from the installed package; kept is what passed on the same packages."""
    suite = this.matrix.suite(want.suite)
    record = this.folder / "work" / f"{want.tag}.json"
    how = source_hash("matrix/conda/suite.py", "matrix/conda/install.py")
    key = text_hash(installed.key, *suite.paths, *suite.arguments, how)
    known = read_json(record)
    if known and known["key"] == key:
        this.steps.say(
            f"the {suite.name} suite beside {want.label}: kept, the packages are the same"
        )
        kept = EnvironmentResult(**known["result"] | {"kept": True})
        return dataclasses.replace(
            kept, solve_seconds=installed.solution.seconds, install_seconds=installed.seconds
        )
    record.unlink(missing_ok=True)
    result = _run(this, want, installed)
    # One that failed is run again the next time.
    if result.status == PASSED:
        write_json(record, {"key": key, "result": dataclasses.asdict(result)})
    return result


def _run(this: Session, want: Wanted, installed: Installed) -> EnvironmentResult:
    suite = this.matrix.suite(want.suite)
    home = installed.prefix / "share" / "lltm"
    work = this.folder / "work" / want.tag
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    junit, log = work / "junit.xml", this.logs / f"suite-{want.tag}.log"
    command = ["python", "-m", "pytest", "-c", str(home / "pyproject.toml"), "-q"]
    # A file's tests share what is expensive to build, and stay in one process.
    command += ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["-o", f"cache_dir={work}/cache"]
    command += [f"--junitxml={junit}", *suite.arguments]
    command += [str(home / path) for path in suite.paths]
    started = time.monotonic()
    with this.steps.step(f"the {suite.name} suite beside {want.label}"):
        code = logged(
            installed.activated(*command),
            log,
            cwd=work,
            limit=60.0 * suite.minutes,
            env=ENVIRONMENT,
        )
    seconds = time.monotonic() - started
    counts = read_junit(junit)
    status, reason = _verdict(code, counts, log)
    return EnvironmentResult(
        name=want.label,
        torch=want.place.torch,
        python=want.place.python.version,
        suite=suite.name,
        lltm=installed.solution.build("lltm"),
        packages=len(installed.records),
        solve_seconds=installed.solution.seconds,
        install_seconds=installed.seconds,
        test_seconds=seconds,
        passed=counts.passed if counts else 0,
        failed=counts.failed if counts else 0,
        skipped=counts.skipped if counts else 0,
        status=status,
        reason=reason,
    )


def _verdict(code: int, counts: Counts | None, log: Path) -> tuple[str, str]:
    if counts is None:
        return FAILED, f"pytest ended with {code} before it had a result; see {log.name}"
    if counts.failed:
        return FAILED, counts.failures[0]
    if code or not counts.passed:
        return FAILED, f"pytest ended with {code}, {counts.passed} tests passed; see {log.name}"
    return PASSED, ""
