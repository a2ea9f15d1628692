"""What a run has shown, as plain data, as tables and as JSON."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from torchproof import terminal
from torchproof.rows.progress import STYLES
from torchproof.rows.results import FAILED, PASSED


@dataclass(frozen=True)
class PackageResult:
    """A package that was built.

    Attributes:
        seconds: the build took.
        bytes: of the file.
        tests: of the recipe, one status each in its order; those of the contents are not among
            them, as a build that fails one makes no package.
        audit: of its binaries; "not run" where it has none.
        kept: built, tested and audited in an earlier run from the same content.
    """

    name: str
    build: str
    file: str
    sha256: str
    seconds: float
    bytes: int
    files: int
    tests: tuple[str, ...]
    audit: str
    kept: bool = False
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return FAILED not in (*self.tests, self.audit)


@dataclass(frozen=True)
class EnvironmentResult:
    """An environment that was solved for, installed and tested, as `conda install` makes it.

    Attributes:
        suite: which of matrix.toml's was run in it.
        build: the build string of the package that the solver chose.
        kept: the suite passed in an earlier run on the same packages.
    """

    name: str
    torch: str
    python: str
    suite: str
    build: str
    packages: int
    solve_seconds: float
    install_seconds: float
    test_seconds: float
    passed: int
    failed: int
    skipped: int
    status: str
    reason: str = ""
    kept: bool = False


@dataclass(frozen=True)
class ProofResult:
    """A property of the packages or the installation, shown by tests/conda.

    Attributes:
        kept: shown in an earlier run of the same packages.
    """

    name: str
    status: str
    seconds: float
    reason: str = ""
    kept: bool = False


@dataclass(frozen=True)
class RenderedResult:
    """A variant of the recipe on a platform: built here, or rendered and no more."""

    platform: str
    name: str
    build: str
    built: bool


@dataclass(frozen=True)
class Results:
    """The whole run."""

    tool: str
    channel_bytes: int
    channel_packages: int
    seconds: float
    packages: tuple[PackageResult, ...] = ()
    environments: tuple[EnvironmentResult, ...] = ()
    proofs: tuple[ProofResult, ...] = ()
    rendered: tuple[RenderedResult, ...] = ()
    not_run: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing failed, and something passed."""
        statuses = [row.status for row in self.environments]
        statuses += [row.status for row in self.proofs]
        packages = [package.ok for package in self.packages]
        return bool(statuses) and FAILED not in statuses and all(packages) and bool(packages)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"ok": self.ok, **dataclasses.asdict(self)}


def tables(results: Results) -> list[Table]:
    """The tables a person reads."""
    return [
        _packages(results.packages),
        _environments(results.environments),
        _proofs(results.proofs),
        _rendered(results.rendered),
    ]


def _table(title: str, *columns: str) -> Table:
    return terminal.table(folded=columns, title=title, title_justify="left", pad_edge=True)


def _status(status: str, reason: str = "") -> Text:
    return Text.assemble((status, STYLES[status]), f": {reason}" if reason else "")


def _packages(packages: Iterable[PackageResult]) -> Table:
    table = _table(
        "Packages built", "package", "build", "seconds", "KB", "files", "recipe tests", "audit"
    )
    for package in packages:
        table.add_row(
            package.name,
            package.build,
            "kept" if package.kept else f"{package.seconds:.1f}",
            f"{package.bytes / 1e3:.0f}",
            str(package.files),
            _recipe_tests(package.tests),
            _status(package.audit, package.reason),
        )
    return table


def _recipe_tests(tests: tuple[str, ...]) -> str:
    # Those of a package's contents are part of its build, which fails with them.
    if not tests:
        return f"of its contents {_status(PASSED)}"
    passed = tests.count(PASSED)
    return f"{passed}/{len(tests)} {_status(PASSED if passed == len(tests) else FAILED)}"


def _environments(environments: Iterable[EnvironmentResult]) -> Table:
    table = _table(
        "Installed and run",
        "beside",
        "build",
        "packages",
        "solve s",
        "install s",
        "suite",
        "tests",
        "test s",
    )
    for row in environments:
        tests = f"{row.passed} passed, {row.failed} failed, {row.skipped} skipped "
        table.add_row(
            row.name,
            row.build,
            str(row.packages),
            f"{row.solve_seconds:.2f}",
            f"{row.install_seconds:.1f}",
            row.suite,
            Text(tests) + _status(row.status, row.reason),
            "kept" if row.kept else f"{row.test_seconds:.1f}",
        )
    return table


def _proofs(proofs: Iterable[ProofResult]) -> Table:
    table = _table("Shown of packages and installation", "property", "seconds", "status")
    for row in proofs:
        took = "kept" if row.kept else f"{row.seconds:.1f}"
        table.add_row(row.name, took, _status(row.status, row.reason))
    return table


def _rendered(rendered: Iterable[RenderedResult]) -> Table:
    table = _table("Variants of the recipe", "platform", "built here", "rendered, never built")
    platforms: dict[str, tuple[list[str], list[str]]] = {}
    for row in rendered:
        built, only = platforms.setdefault(row.platform, ([], []))
        (built if row.built else only).append(f"{row.name} {row.build.split('_')[0]}")
    for platform, (built, only) in platforms.items():
        table.add_row(platform, ", ".join(built) or "none", ", ".join(only) or "none")
    return table
