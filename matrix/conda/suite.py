"""An environment as `conda install` makes it, and the suite of `lltm-tests` run in it."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from matrix.conda.install import Installed, install
from matrix.conda.processes import logged
from matrix.conda.results import FAILED, PASSED, EnvironmentResult
from matrix.results import Counts, read_junit

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.conda.places import Place
    from matrix.conda.session import Session


def make_environment(this: Session, place: Place) -> Installed:
    """A fresh prefix with lltm, as `conda install` makes it."""
    prefix = this.folder / "environments" / place.tag
    shutil.rmtree(prefix, ignore_errors=True)
    specs = ["lltm", "lltm-tests", f"pytorch {place.torch}.*", f"python {place.series}.*"]
    with this.steps.step(f"install beside {place.label}"):
        return install(this.channels, specs, prefix, this.cache)


def test_environment(
    this: Session, place: Place, installed: Installed, *, full: bool
) -> EnvironmentResult:
    """Run the installed suite from the installed package: all of it, or its core."""
    suite = this.matrix.suite("full" if full else "core")
    home = installed.prefix / "share" / "lltm"
    work = this.folder / "work" / place.tag
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    junit, log = work / "junit.xml", this.logs / f"suite-{place.tag}.log"
    command = [str(installed.python), "-m", "pytest", "-c", str(home / "pyproject.toml"), "-q"]
    command += ["-n", "2", "-o", f"cache_dir={work}/cache", f"--junitxml={junit}", *suite.arguments]
    command += [str(home / path) for path in suite.paths]
    started = time.monotonic()
    with this.steps.step(f"the {suite.name} suite beside {place.label}"):
        code = logged(command, log, cwd=work, limit=60.0 * suite.minutes)
    seconds = time.monotonic() - started
    counts = read_junit(junit)
    status, reason = _verdict(code, counts, log)
    return EnvironmentResult(
        name=place.label,
        torch=place.torch,
        python=place.python.version,
        lltm=installed.solution.build("lltm"),
        packages=len(installed.solution.records),
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
