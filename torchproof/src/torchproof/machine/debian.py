"""Debian's packages, unpacked into folders: nothing is installed into the system."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchproof.config import Emulator
from torchproof.errors import TorchproofError

SUITE = "sid"
# The release that has a CPython, where that is not the newest one.
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
LIBRARIES = ("libgomp1", "libstdc++6")  # torch takes them from the system
# How compilers, configure and apt begin the first line that says why they failed.
CAUSE = re.compile(r"error: |^E: ")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NotOffered(TorchproofError):
    """No package has the program; the message says why, in one sentence."""


@dataclass(frozen=True)
class AptRoot:
    """A package state under `folder`: it knows one suite, and has no package installed.

    `architecture` is Debian's name of a platform; "" for this system's own.
    """

    folder: Path
    suite: str
    architecture: str = ""

    def update(self) -> None:
        """Read the suite's index, from where this system gets its own packages."""
        for name in ("state/lists/partial", "cache/archives/partial", "empty"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        source = f"deb [signed-by={KEYRING}] {mirror()} {self.suite} main\n"
        (self.folder / "sources.list").write_text(source, encoding="utf-8")
        self._apt("update")

    def download(self, *packages: str) -> list[Path]:
        """Packages with everything they depend on, as files."""
        self._apt("install", "--download-only", "--no-install-recommends", "--yes", *packages)
        return sorted((self.folder / "cache" / "archives").glob("*.deb"))

    def _apt(self, *command: str) -> None:
        settings: dict[str, str | Path] = {
            "Dir::State": self.folder / "state",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": self.folder / "empty",
            # A snapshot of the suite may be older than its index says it is good for.
            "Acquire::Check-Valid-Until": "false",
            # Else an index that cannot be fetched is an empty one.
            "APT::Update::Error-Mode": "any",
        }
        if self.architecture:
            settings |= {"APT::Architecture": self.architecture}
            settings |= {"APT::Architectures": self.architecture}
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        run("apt-get", "--quiet", *options, *command)


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """A program's output, run in a folder."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        cause = next((line for line in lines if CAUSE.search(line)), lines[-1])
        raise NotOffered(f"{command[0]} failed: {cause}")
    return done.stdout


def mirror() -> str:
    """The archive that this system's own apt reads Debian from."""
    found = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian")
    if not found:
        raise NotOffered("apt has read no index of Debian's; run `apt-get update`")
    return found.splitlines()[0]


def unpack(suite: str, packages: Sequence[str], scratch: Path, architecture: str = "") -> Path:
    """A folder with a suite's packages and all that they depend on."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise NotOffered(f"there is no {tool} on PATH")
    root = AptRoot(scratch, suite, architecture)
    root.update()
    unpacked = scratch / "unpacked"
    for package in root.download(*packages):
        run("dpkg", "-x", package, unpacked)
    return unpacked


def relocate_links(unpacked: Path) -> None:
    """Point the links of unpacked packages at their own files: some name this system's."""
    for link in sorted(unpacked.rglob("*")):
        if link.is_symlink() and link.readlink().is_absolute():
            target = unpacked / link.readlink().relative_to("/")
            link.unlink()
            link.symlink_to(target)


def copy_libraries(unpacked: Path, triplet: str, target: Path) -> None:
    """Copy the shared libraries of unpacked packages; an older release has some in its /lib."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in (unpacked / "lib" / triplet, unpacked / "usr" / "lib" / triplet):
        for path in folder.glob("*.so*"):
            if path.is_file():  # and no link to what is not here
                shutil.copy2(path, target)


def unpack_cpython(name: str, platform: Emulator, target: Path, scratch: Path) -> Path:
    """The CPython of a series and a platform with its libraries and headers; returns its program.

    Raises:
        NotOffered: there is no such package, or a tool is missing.
    """
    packages = (f"python{name}", f"libpython{name}-dev", *LIBRARIES)
    unpacked = unpack(SUITES.get(name, SUITE), packages, scratch, platform.debian)
    headers = f"include/python{name}"
    # CPython finds its library and its headers beside the folder of its program.
    for part in (f"bin/python{name}", f"lib/python{name}", headers):
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked / "usr" / part, target / part)
    # Debian's header includes the real one by a path that is searched in the system alone.
    own = unpacked / "usr" / "include" / platform.triplet / f"python{name}" / "pyconfig.h"
    shutil.copy2(own, target / headers / "pyconfig.h")
    copy_libraries(unpacked, platform.triplet, target / "lib" / platform.triplet)
    for archive in target.rglob("*.a"):
        archive.unlink()
    return target / "bin" / f"python{name}"
