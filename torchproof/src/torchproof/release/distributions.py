"""The sdist and the wheel, built where nothing but the build requirements is installed."""

import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from platform import python_version

from build import BuildBackendException, BuildException, ProjectBuilder
from build.env import DefaultIsolatedEnv

from torchproof.release.version import ReleaseError

EPOCH = "SOURCE_DATE_EPOCH"
LAST_OF_GZIP = 2**32 - 1  # in 2106; of a zip file it is in 2107


@dataclass(frozen=True)
class Built:
    """The sdist, the wheel made from it, and the wheel made from the tree."""

    sdist: Path
    wheel: Path
    from_tree: Path


def build(root: Path, scratch: Path) -> Built:
    """Build a git checkout's tracked files, and its sdist alone, in one empty environment.

    Args:
        root: the checkout.
        scratch: an empty folder that everything is written under.
    """
    tree = scratch / "tree"
    export(root, tree)
    with epoch(root), DefaultIsolatedEnv() as environment:
        try:
            builder = ProjectBuilder.from_isolated_env(environment, tree)
            install(environment, builder.build_system_requires)
            sdist = Path(builder.build("sdist", scratch / "sdist"))
            alone = unpack(sdist, scratch / "unpacked")
            from_tree = Path(builder.build("wheel", scratch / "from-tree"))
            builder = ProjectBuilder.from_isolated_env(environment, alone)
            wheel = Path(builder.build("wheel", scratch / "from-sdist"))
        except (BuildBackendException, BuildException) as error:
            raise ReleaseError(
                f"the build failed: {str(error).rstrip('.')}; its output is above"
            ) from error
    return Built(sdist, wheel, from_tree)


def install(environment: DefaultIsolatedEnv, requires: Collection[str]) -> None:
    """Install what `[build-system]` requires."""
    try:
        environment.install(requires)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise ReleaseError(
            f"pip cannot install what [build-system] requires for CPython {python_version()}: "
            f"{['no output', *lines, *errors][-1]}; run this with a Python that it has a wheel for"
        ) from None


def export(root: Path, target: Path) -> None:
    """Copy what git tracks, as it lies in the work tree: neither caches nor earlier builds."""
    listed = git(root, "ls-files", "-z")
    if listed.returncode:
        raise ReleaseError(f"{root} is no git checkout, a release is built from one")
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask git of a checkout; one that another user made, as a container sees it, is trusted."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def unpack(sdist: Path, target: Path) -> Path:
    """Unpack a sdist; its one folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    (folder,) = target.iterdir()
    return folder


@contextmanager
def epoch(root: Path) -> Iterator[None]:
    """Date archives by the last commit, unless the caller has named a date.

    Raises:
        ReleaseError: what the caller has named is no date, or there is no commit.
    """
    if named := os.environ.get(EPOCH):
        if not named.isdecimal() or int(named) > LAST_OF_GZIP:
            raise ReleaseError(
                f"{EPOCH} must be seconds since 1970, at most {LAST_OF_GZIP}, got {named!r}; "
                f"without it the last commit's date is taken"
            )
        yield
        return
    dated = git(root, "log", "-1", "--format=%ct")
    if dated.returncode:
        raise ReleaseError(
            f"{root} has no commit of git, whose date a release has: make one, or name a date in "
            f"{EPOCH}"
        )
    os.environ[EPOCH] = dated.stdout.strip()
    try:
        yield
    finally:
        del os.environ[EPOCH]


def differences(one: Path, other: Path) -> list[str]:
    """The members in which two wheels differ, and the archives themselves if only they do."""
    if one.read_bytes() == other.read_bytes():
        return []
    with zipfile.ZipFile(one) as a, zipfile.ZipFile(other) as b:
        names = sorted({*a.namelist(), *b.namelist()})
        differing = [
            name
            for name in names
            if name not in a.namelist() or name not in b.namelist() or a.read(name) != b.read(name)
        ]
    return differing or ["the order or the dates of their members"]
