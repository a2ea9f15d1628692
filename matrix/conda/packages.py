"""A package of the recipe: built, tested, audited; kept while what it is made of stays."""

from __future__ import annotations

import dataclasses
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from matrix import config
from matrix.audit import audit, default_policy, to_json
from matrix.conda import build
from matrix.conda.results import FAILED, NOT_RUN, PASSED, PackageResult
from matrix.files import read_json, sha256, source_hash, text_hash, write_atomically, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.conda.rendered import Output
    from matrix.conda.session import Session

# How conda, too, is told of a driver that is not there.
OVERRIDE = "CONDA_OVERRIDE_CUDA"
# What a package is made of; tests and recipe too, as lltm-tests is one.
SOURCES = ("csrc", "lltm", "recipe", "tests", "setup.py", "pyproject.toml")


def make_package(this: Session, wanted: Output) -> PackageResult:
    """Build a package, run its recipe's tests and audit it; kept when its content is the same."""
    record = this.shop.output / f"{wanted.name}-{wanted.build}.json"
    parts = read_json(this.channel.state) or {}
    key = text_hash(
        source_hash(*SOURCES), this.tool, *sorted(part["key"] for part in parts.values())
    )
    known = read_json(record)
    if known and known["key"] == key and known["result"]:
        kept = PackageResult(**known["result"] | {"kept": True})
        path = Path(kept.file)
        if kept.ok and path.is_file() and sha256(path) == kept.sha256:
            this.steps.say(f"{wanted.key}: kept, nothing it is made of has changed")
            return dataclasses.replace(kept, tests=tuple(kept.tests))
    record.unlink(missing_ok=True)
    _forget(this.shop.output, wanted)
    with this.steps.step(f"{wanted.key}: build"):
        built = build.tool(this.tool).build(this.shop, wanted)
    with this.steps.step(f"{wanted.key}: the recipe's tests"):
        tests = recipe_tests(this, built, driver=cuda_release(wanted))
    audited, reason = audit_package(this, wanted, built.path)
    result = PackageResult(
        name=wanted.name,
        build=wanted.build,
        file=str(built.path),
        sha256=sha256(built.path),
        seconds=built.seconds,
        bytes=built.path.stat().st_size,
        files=len(built.package.files),
        tests=tests,
        audit=audited,
        reason=reason,
    )
    write_json(record, {"key": key, "result": dataclasses.asdict(result)})
    return result


def forget_others(output: Path, wanted: Iterable[Output]) -> None:
    """Take out of the channel what the recipe no longer makes, or the solver might choose it."""
    names = {f"{one.name}-{one.version}-{one.build}.conda" for one in wanted}
    for package in output.glob("*/*.conda"):
        if package.name not in names:
            package.unlink()


def _forget(output: Path, wanted: Output) -> None:
    # An unpacked package is cached under its name: a new build must not meet the old one.
    name = f"{wanted.name}-{wanted.version}-{wanted.build}"
    (output / build.PLATFORM / f"{name}.conda").unlink(missing_ok=True)
    for folder in (output.parent / "cache" / "pkgs").glob(f"{name}*"):
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()


def recipe_tests(this: Session, built: build.Built, driver: str | None) -> tuple[str, ...]:
    """The status of each of the recipe's tests; what they print goes to the log.

    A CUDA package is tested as if there were a `driver` for it: it has to install and import.
    """
    log = this.logs / f"{built.path.stem}-tests.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with _driver(driver):
        ended = built.package.run_tests(channel=this.shop.uris)
    with log.open("w", encoding="utf-8") as file:
        for test in ended:
            file.write(f"== test {test.test_index}: {'passed' if test.success else 'failed'}\n")
            file.write("\n".join(test.output) + "\n")
    failed = [test for test in ended if not test.success]
    if failed:
        this.steps.say(f"[red]{len(failed)} of the recipe's tests failed[/]; see {log}")
    return tuple(PASSED if test.success else FAILED for test in ended)


@contextmanager
def _driver(release: str | None) -> Iterator[None]:
    before = os.environ.get(OVERRIDE)
    if release is not None:
        os.environ[OVERRIDE] = release
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(OVERRIDE, None)
        else:
            os.environ[OVERRIDE] = before


def cuda_release(wanted: Output) -> str | None:
    """The CUDA release a package is built with: "13.0" of "cuda130_h1234567_1300"."""
    device = wanted.build.split("_")[0]
    digits = device.removeprefix("cuda")
    return f"{digits[:-1]}.{digits[-1]}" if device != digits else None


def audit_package(this: Session, wanted: Output, path: Path) -> tuple[str, str]:
    """Hold the package's library to what the recipe declares; the status and why."""
    if wanted.name == "lltm-tests":
        return NOT_RUN, "it holds no binary"
    native = wanted.name == "lltm-native"
    cuda = cuda_release(wanted)
    policy = dataclasses.replace(
        default_policy(),
        binding="native" if native else "stable",
        target=None if native else this.matrix.stable.target,
        torch=config.series(this.places[0 if native else -1].torch),
        python="none",
        cuda=cuda or "cpu",
        cuda_architectures=(build.LOCAL_ARCHITECTURES,) if cuda else None,
    )
    report = audit(path, policy)
    write_atomically(this.logs / f"{path.stem}-audit.json", to_json([report]) + "\n")
    failed = sorted({finding.rule for library in report.libraries for finding in library.failed})
    return (FAILED, ", ".join(failed)) if failed else (PASSED, "")
