"""The CPythons that matrix.toml names and this machine lacks, from Debian's packages.

Each is unpacked into a folder of its own under the user's cache, with the C library it was built
on; nothing is installed into the system. `machine.inventory.find_pythons` finds them there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof import config
from torchproof.config import series
from torchproof.errors import TorchproofError
from torchproof.machine.inventory import Interpreter, find_pythons, interpreters_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

SUITE = "sid"
LIBRARIES = ("libgomp1", "libstdc++6")  # torch takes them from the system
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LOADER = "ld-linux-x86-64.so.2"
TRIPLET = "x86_64-linux-gnu"
LOADED_FIRST = ("libstdc++.so.6", "librt.so.1")


class NotOffered(TorchproofError):
    """No package has the interpreter; the message says why, in one sentence."""


@dataclass(frozen=True)
class AptRoot:
    """A package state under `folder`: it knows one suite, and has no package installed."""

    folder: Path
    suite: str

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
        settings = {
            "Dir::State": self.folder / "state",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": self.folder / "empty",
            # A snapshot of the suite may be older than its index says it is good for.
            "Acquire::Check-Valid-Until": "false",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        run("apt-get", "--quiet", *options, *command)


def run(*command: str | Path) -> str:
    """A program's output.

    Raises:
        NotOffered: it failed; with its last line.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise NotOffered(f"{command[0]} failed: {last}")
    return done.stdout


def mirror() -> str:
    """The archive that this system's own apt reads Debian from."""
    found = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian")
    if not found:
        raise NotOffered("apt has read no index of Debian's; run `apt-get update`")
    return found.splitlines()[0]


def unpack(suite: str, packages: Sequence[str], scratch: Path) -> Path:
    """The `usr` folder of a suite's packages and of all that they depend on."""
    for tool in ("apt-get", "dpkg", "patchelf"):
        if shutil.which(tool) is None:
            raise NotOffered(f"there is no {tool} on PATH")
    root = AptRoot(scratch, suite)
    root.update()
    unpacked = scratch / "unpacked"
    for package in root.download(*packages):
        run("dpkg", "-x", package, unpacked)
    return unpacked / "usr"


def fetch(name: str, target: Path, scratch: Path) -> Path:
    """The CPython of a series, unpacked so that it runs where it is.

    Args:
        name: the series, "3.14".
        target: the folder it is put in.
        scratch: a folder for the packages.

    Raises:
        NotOffered: there is no such package, or apt or patchelf is missing.
    """
    usr = unpack(SUITE, (f"python{name}", f"libpython{name}-dev", *LIBRARIES), scratch)
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    (target / "lib").mkdir()
    (target / "include").mkdir()
    headers = f"include/python{name}"
    # CPython finds its library and its headers beside the folder of its program.
    for part in (f"bin/python{name}", f"lib/python{name}", f"lib/{TRIPLET}", headers):
        shutil.move(usr / part, target / part)
    # Debian's header includes the real one by a path that is searched in the system alone.
    own = usr / "include" / TRIPLET / f"python{name}" / "pyconfig.h"
    shutil.copy2(own, target / headers / "pyconfig.h")
    for archive in target.rglob("*.a"):
        archive.unlink()
    return settle(target / "bin" / f"python{name}", target / "lib" / TRIPLET)


def adopt(prefix: Path, system: config.System, target: Path, scratch: Path) -> Path:
    """A copy of a CPython that was built on a system, with that system's libraries to run on.

    Raises:
        NotOffered: the prefix holds no CPython, or the libraries cannot be had.
    """
    program = next(iter(sorted((prefix / "bin").glob("python3.[0-9]*[0-9t]"))), None)
    if program is None:
        raise NotOffered(f"{prefix} has no bin/python3.*; name the prefix of a CPython")
    unpacked = unpack(system.suite, system.packages, scratch).parent
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(prefix, target, symlinks=True)
    libraries = target / "lib" / TRIPLET
    libraries.mkdir(parents=True)
    # A release whose /lib is a folder of its own has the C library there.
    for folder in (unpacked / "lib" / TRIPLET, unpacked / "usr" / "lib" / TRIPLET):
        for path in folder.glob("*.so*"):
            shutil.copy2(path, libraries)
    return settle(target / "bin" / program.name, libraries)


def settle(program: Path, libraries: Path) -> Path:
    """Start a program by the loader in `libraries`, with that folder's libraries for all it loads.

    The search path of the old kind serves the libraries of its libraries, too. Some are loaded
    first: a library with a search path of its own would take the machine's.
    """
    loader: tuple[str | Path, ...] = ("--set-interpreter", libraries / LOADER)
    search = ("--force-rpath", "--set-rpath", libraries)
    first = [word for name in LOADED_FIRST for word in ("--add-needed", name)]
    run("patchelf", *loader, *search, *first, program)
    return program


def wanted(matrix: config.Matrix, found: tuple[Interpreter, ...]) -> list[str]:
    """The series that some torch has a wheel for and that is not among those found."""
    named = {name for release in matrix.torch for name in release.every_python}
    return sorted(named - {series(python.version) for python in found}, key=config.number)


def main(argv: list[str] | None = None) -> int:
    """Fetch what is missing; 0 unless what was named on the command line cannot be had."""
    parser = argparse.ArgumentParser(prog="nox -s interpreters --", description=__doc__)
    parser.add_argument("series", nargs="*", help="3.14; every missing one when left out")
    parser.add_argument(
        "--on",
        nargs=2,
        metavar=("SYSTEM", "PREFIX"),
        help="put the CPython in a prefix, built on that system, on its C library",
    )
    options = parser.parse_args(argv)
    matrix = config.load()
    if options.on:
        return _adopt(matrix, options.on[0], Path(options.on[1]))
    failed = False
    for name in options.series or wanted(matrix, find_pythons()):
        try:
            with tempfile.TemporaryDirectory(prefix="torchproof-") as scratch:
                print(f"CPython {name}: {fetch(name, interpreters_folder() / name, Path(scratch))}")
        except NotOffered as error:
            failed = failed or name in options.series
            print(f"CPython {name}: not fetched: {error}; `pyenv install {name}` builds it")
    return int(failed)


def _adopt(matrix: config.Matrix, name: str, prefix: Path) -> int:
    system = matrix.system(name)
    if system is None:
        names = ", ".join(system.name for system in matrix.systems)
        print(f"there is no system {name!r} in matrix.toml; the systems are {names}")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="torchproof-") as scratch:
            target = interpreters_folder().with_name("systems") / name
            print(f"{name}: {adopt(prefix, system, target, Path(scratch))}")
    except NotOffered as error:
        print(f"{name}: not made: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
