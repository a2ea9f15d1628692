"""What a wheel will do in a torch, from its files alone."""

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from torchproof.audit import ArtifactError, LibraryReport
from torchproof.audit.apply_rules import judge
from torchproof.audit.artifact import Artifact, Member, NoLibraryError, opened
from torchproof.audit.policy import default_policy
from torchproof.audit.torches import find_torch
from torchproof.config import series
from torchproof.grid.trials import FAILS, LOADS, SEVERITY, UNSAFE, UNSUPPORTED, WORKS
from torchproof.grid.wheel_file import GridError, Wheel
from torchproof.machine.environments import Environment

# Where a wheel keeps what an installer puts at the top.
DATA = re.compile(r"^[^/]+\.data/(purelib|platlib)/")


def libraries(wheel: Wheel, site: Path, environment: Environment) -> dict[str, LibraryReport]:
    """The audit of each library that uses torch, with its one verdict, by its path in the wheel.

    `site` is where the wheel is installed, beside what it requires.
    """
    policy = default_policy()
    if wheel.built_on:
        policy = replace(policy, torch=series(wheel.built_on))
    try:
        with opened(wheel.path) as artifact:
            torch = find_torch(environment.site_packages)
            report = judge(_in_place(artifact, site), policy, [torch])
    except NoLibraryError:  # it is all Python
        return {}
    except ArtifactError as error:
        raise GridError(str(error)) from error
    if report.unreadable:
        raise GridError(f"{wheel.path.name}: {'; '.join(report.unreadable)}; build it again")
    return {found.name: found for found in report.libraries if found.verdicts}


def installed_path(site: Path, name: str) -> Path:
    """Where an installer has put a file of a wheel."""
    return site / DATA.sub("", name)


def _in_place(artifact: Artifact, site: Path) -> Artifact:
    """With the libraries that are installed: their search paths may lead into other packages."""
    places = ((member, installed_path(site, member.name)) for member in artifact.members)
    members = (Member(each.name, at) if at.is_file() else each for each, at in places)
    return replace(artifact, members=tuple(members))


def package(
    wheel: Wheel, environment: Environment, reports: Mapping[str, LibraryReport]
) -> tuple[str, str]:
    """What importing and using the package will do, and why."""
    used = [
        report
        for name, report in reports.items()
        if any(fnmatch(name, pattern) for pattern in wheel.uses)
    ]
    worst, reason = max(
        (
            (verdict.outcome, f"{each.name}: {verdict.reason}")
            for each in used
            for verdict in each.verdicts
        ),
        key=lambda each: SEVERITY.index(each[0]),
        default=(LOADS, "no library needs torch"),
    )
    if worst == FAILS:
        return FAILS, reason
    if not wheel.admits(environment.torch):
        return UNSUPPORTED, f"its metadata declares torch{wheel.declares}"
    if worst == UNSAFE:
        return UNSAFE, reason
    cuda = find_torch(environment.site_packages).cuda
    made_by = sorted({release for each in used for release in each.facts.cuda_releases})
    if cuda and made_by and series(cuda) not in made_by and not wheel.guarded:
        # The loader takes it, but some packages compare the two releases.
        return UNSUPPORTED, f"it was made by CUDA {', '.join(made_by)}, this torch by CUDA {cuda}"
    return WORKS, reason
