"""Which wheels a release must hold: one a proven platform, loading where its image promises."""

import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchproof.audit import manylinux
from torchproof.config import Matrix, Platform

# How wheels spell the systems and machines of matrix.toml.
SYSTEMS = {"linux": "manylinux", "macos": "macosx", "windows": "win"}
MACHINES = {"windows-x86_64": "amd64"}


def missing(matrix: Matrix, files: Iterable[Path]) -> list[str]:
    """A sentence for the sdist and for every proven platform that has no wheel among the files."""
    names = [path.name for path in files]
    found = [] if any(name.endswith(".tar.gz") for name in names) else ["dist: there is no sdist"]
    tags = {
        tag.platform
        for name in names
        if name.endswith(".whl")
        for tag in parse_wheel_filename(name)[3]
    }
    for platform in matrix.platforms:
        if platform.proven and not any(serves(tag, platform) for tag in tags):
            wanted = policy(platform) or platform.name
            given = ", ".join(sorted(tags)) or "none"
            found.append(f"dist: expected a wheel for {wanted} or older systems, found {given}")
    return found


def serves(tag: str, platform: Platform) -> bool:
    """Whether a wheel's platform tag is for a platform, and loads wherever its image promises."""
    system, _, machine = platform.name.partition("-")
    if not (tag.startswith(SYSTEMS[system]) and tag.endswith(MACHINES.get(platform.name, machine))):
        return False
    promised = policy(platform)
    return promised is None or manylinux.satisfies(machine, tag, promised)


def is_unread(wheel: Path) -> bool:
    """Whether a wheel is for systems alone whose libraries are not ELF."""
    systems = ("macosx", "win")
    return all(tag.platform.startswith(systems) for tag in parse_wheel_filename(wheel.name)[3])


def policy(platform: Platform) -> str | None:
    """The manylinux policy in the name of a platform's image."""
    found = re.search(r"manylinux_\d+_\d+_\w+", platform.image)
    return found.group() if found else None
