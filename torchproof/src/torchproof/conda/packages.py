"""A package of the recipe: built, tested, audited; kept while what it is made of stays."""

import dataclasses
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchproof import config
from torchproof.conda import package_builder
from torchproof.conda.package_checks import PackageChecks, audit_package, cuda_release, recipe_tests
from torchproof.conda.rendered import Output
from torchproof.conda.session import Session
from torchproof.conda.summary import PackageResult
from torchproof.conda.worker_pool import WorkerPool, done
from torchproof.files import read_sealed, sha256, source_hash, text_hash, tool_hash, write_sealed


@dataclass(frozen=True)
class Package:
    """A package file in the channel, and what its tests and audit showed in an earlier run.

    Attributes:
        key: what it is made of, and what with.
        kept: None where it was built in this run, and nothing is shown of it yet.
    """

    output: Output
    built: package_builder.Built
    sha256: str
    key: str
    kept: PackageResult | None = None


def make_packages(
    session: Session, workers: WorkerPool, outputs: list[Output]
) -> Iterator[Package]:
    """Build what is missing; each package as soon as it is there.

    Kept from an earlier run is what passed there and is made of the same content.

    Raises:
        BuildFailed: one could not be built.
    """
    keys = {one.key: content_key(session, one) for one in outputs}
    kept = {one.key: package for one in outputs if (package := _known(session, one, keys[one.key]))}
    for name in kept:
        session.steps.say(f"{name}: kept, nothing it is made of has changed")
    missing = [one for one in outputs if one.key not in kept]
    forget_others(session.context.output, (one for one in outputs if one.key in kept))
    for one in missing:
        _forget(session.context.output, one)
    yield from kept.values()
    for one, built in _build(session, workers, missing):
        yield Package(one, built, sha256(built.path), keys[one.key])
    package_builder.index(session.context.output)


def _build(
    session: Session, workers: WorkerPool, missing: list[Output]
) -> Iterator[tuple[Output, package_builder.Built]]:
    tool = package_builder.tool(session.tool)
    begun = {}
    for one in missing:
        future = workers.submit(f"{one.key}: build", partial(tool.build, session.context, one))
        begun[future] = one
        if not tool.many_at_once:
            future.result()
    for future in as_completed(begun):
        yield begun[future], future.result()


def test_package(session: Session, workers: WorkerPool, package: Package) -> Future[PackageResult]:
    """Run the recipe's tests and the audit, unless they are known."""
    if package.kept is not None:
        return done(package.kept)
    record = _record(session, package.output)
    return workers.submit(
        f"{package.output.key}: the recipe's tests, audit",
        partial(_prove, session.checks, package, record),
    )


def sources() -> tuple[str, ...]:
    """What a package is made of."""
    beside = ("LICENSE", "MANIFEST.in", "README.md", config.FILE, "recipe")
    return (*config.project().sources, *beside)


def content_key(session: Session, wanted: Output) -> str:
    """What a package is made of, and what with."""
    own = config.project().tests if wanted.name == config.project().conda.tests else ()
    return text_hash(
        source_hash(*sources(), *own),
        tool_hash("audit", "conda"),
        session.tool,
        session.channel.key,
    )


def _record(session: Session, wanted: Output) -> Path:
    return session.context.output / f"{wanted.name}-{wanted.build}.json"


def _known(session: Session, wanted: Output, key: str) -> Package | None:
    """What an earlier run found; only of the same content, the same file, and if it passed."""
    known = read_sealed(_record(session, wanted))
    if not known or known["key"] != key:
        return None
    result = PackageResult(**known["result"] | {"kept": True})
    path = Path(result.file)
    if not (result.ok and path.is_file() and sha256(path) == result.sha256):
        return None
    result = dataclasses.replace(result, tests=tuple(result.tests))
    return Package(wanted, package_builder.Built(path, result.seconds), result.sha256, key, result)


def forget_others(output: Path, wanted: Iterable[Output]) -> None:
    """Take out of the channel what is not wanted, or the solver might choose it."""
    names = {f"{one.name}-{one.version}-{one.build}.conda" for one in wanted}
    for package in output.glob("*/*.conda"):
        if package.name not in names:
            package.unlink()


def _forget(output: Path, wanted: Output) -> None:
    (output / f"{wanted.name}-{wanted.build}.json").unlink(missing_ok=True)
    # An unpacked package is cached under its name: a new build must not meet the old one.
    name = f"{wanted.name}-{wanted.version}-{wanted.build}"
    for folder in (output.parent / "cache" / "pkgs").glob(f"{name}*"):
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()


def _prove(checks: PackageChecks, package: Package, record: Path) -> PackageResult:
    wanted, built = package.output, package.built
    tests = recipe_tests(checks, built, driver=cuda_release(wanted))
    audited, reason = audit_package(checks, wanted, built.path)
    result = PackageResult(
        name=wanted.name,
        build=wanted.build,
        file=str(built.path),
        sha256=package.sha256,
        seconds=built.seconds,
        bytes=built.path.stat().st_size,
        files=len(built.package.files),
        tests=tests,
        audit=audited,
        reason=reason,
    )
    write_sealed(record, {"key": package.key, "result": dataclasses.asdict(result)})
    return result
