"""What a built package is tested and audited with, and how."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchproof import config
from torchproof.audit import Policy, audit, default_policy, to_json
from torchproof.audit.system_libraries import system_ceilings
from torchproof.conda import package_builder
from torchproof.conda.rendered import Output
from torchproof.conda.targets import Target
from torchproof.config import Matrix
from torchproof.files import write_atomically
from torchproof.rows.results import FAILED, NOT_RUN, PASSED

# The variable by which conda and rattler are given a driver that is not there.
OVERRIDE = "CONDA_OVERRIDE_CUDA"


@dataclass(frozen=True)
class PackageChecks:
    """What a built package is tested and audited with.

    Attributes:
        uris: channels of what it needs; itself it brings along.
    """

    uris: tuple[str, ...]
    logs: Path
    policies: dict[str, Policy]


def policies(matrix: Matrix, targets: tuple[Target, ...]) -> dict[str, Policy]:
    """What the audit holds each package's library to, by the package's name."""
    stable = dataclasses.replace(
        default_policy(),
        binding="stable",
        target=matrix.stable.target,
        torch=config.series(targets[-1].torch),
        python="none",
        cuda="cpu",
        # A package built here declares this machine's C library, not that of a release.
        ceilings=system_ceilings(),
    )
    native = dataclasses.replace(
        stable, binding="native", target=None, torch=config.series(targets[0].torch)
    )
    names = config.project().conda
    return {names.stable: stable, names.native: native}


def recipe_tests(
    checks: PackageChecks, built: package_builder.Built, driver: str | None
) -> tuple[str, ...]:
    """The status of each of the recipe's tests; what they print goes to the log.

    A CUDA package is tested as if there were a `driver` for it: it has to install and import.
    """
    with driver_override(driver):
        ended = built.package.run_tests(channel=checks.uris)
    lines = []
    for test in ended:
        lines += [f"== test {test.test_index}: {'passed' if test.success else 'failed'}"]
        lines += test.output
    write_atomically(checks.logs / f"{built.path.stem}-tests.log", "\n".join(lines) + "\n")
    return tuple(PASSED if test.success else FAILED for test in ended)


@contextmanager
def driver_override(release: str | None) -> Iterator[None]:
    """As if there were a driver of that CUDA release; what the machine has, for None."""
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


def audit_package(checks: PackageChecks, wanted: Output, path: Path) -> tuple[str, str]:
    """Hold the package's library to what the recipe declares; the status and why."""
    policy = checks.policies.get(wanted.name)
    if policy is None:
        return NOT_RUN, "it holds no binary"
    if cuda := cuda_release(wanted):
        architectures = (package_builder.LOCAL_ARCHITECTURES,)
        policy = dataclasses.replace(policy, cuda=cuda, cuda_architectures=architectures)
    report = audit(path, policy)
    write_atomically(checks.logs / f"{path.stem}-audit.json", to_json([report]) + "\n")
    failed = sorted({finding.rule for library in report.libraries for finding in library.failed})
    if not report.libraries:
        return FAILED, "the audit found no library in it"
    return (FAILED, ", ".join(failed)) if failed else (PASSED, "")
