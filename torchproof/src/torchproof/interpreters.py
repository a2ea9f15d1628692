"""The CPythons that matrix.toml names and this machine lacks, from Debian's packages.

Each is unpacked into a folder of its own under the user's cache, with the C library it was built
on; nothing is installed into the system. `torchproof.machine.find_pythons` finds them there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchproof import config
from torchproof.config import series
from torchproof.machine import Interpreter, find_pythons, interpreters_folder

SUITE = "sid"
LIBRARIES = ("libgomp1", "libstdc++6")  # torch takes them from the system
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LOADER = "ld-linux-x86-64.so.2"
TRIPLET = "x86_64-linux-gnu"


class NotOffered(Exception):  # noqa: N818  # the reason a CPython is not fetched
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


def fetch(name: str, target: Path, scratch: Path) -> Path:
    """The CPython of a series, unpacked so that it runs where it is.

    Args:
        name: the series, "3.14".
        target: the folder it is put in.
        scratch: a folder for the packages.

    Raises:
        NotOffered: there is no such package, or apt or patchelf is missing.
    """
    for tool in ("apt-get", "dpkg", "patchelf"):
        if shutil.which(tool) is None:
            raise NotOffered(f"there is no {tool} on PATH")
    root = AptRoot(scratch, SUITE)
    root.update()
    unpacked = scratch / "unpacked"
    for package in root.download(f"python{name}", *LIBRARIES):
        run("dpkg", "-x", package, unpacked)
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    (target / "lib").mkdir()
    # CPython finds its library beside the folder of its program.
    for part in (f"bin/python{name}", f"lib/python{name}", f"lib/{TRIPLET}"):
        shutil.move(unpacked / "usr" / part, target / part)
    program = target / "bin" / f"python{name}"
    settle(program, target / "lib" / TRIPLET)
    return program


def settle(program: Path, libraries: Path) -> None:
    """Start a program by the loader in `libraries`, with that folder's libraries for all it loads.

    The search path of the old kind serves the libraries of its libraries, too; libstdc++ is loaded
    first, or a library with a search path of its own would take the system's.
    """
    loader: tuple[str | Path, ...] = ("--set-interpreter", libraries / LOADER)
    search = ("--force-rpath", "--set-rpath", libraries)
    run("patchelf", *loader, *search, "--add-needed", "libstdc++.so.6", program)


def wanted(matrix: config.Matrix, found: tuple[Interpreter, ...]) -> list[str]:
    """The series that some torch has a wheel for and that is not among those found."""
    named = {name for release in matrix.torch for name in release.every_python}
    return sorted(named - {series(python.version) for python in found}, key=config.number)


def main(argv: list[str] | None = None) -> int:
    """Fetch what is missing; 0 unless one that was named on the command line cannot be had."""
    parser = argparse.ArgumentParser(prog="nox -s interpreters --", description=__doc__)
    parser.add_argument("series", nargs="*", help="3.14; every missing one when left out")
    options = parser.parse_args(argv)
    missing = wanted(config.load(), find_pythons())
    failed = False
    for name in options.series or missing:
        target = interpreters_folder() / name
        try:
            with tempfile.TemporaryDirectory(prefix="torchproof-") as scratch:
                print(f"CPython {name}: {fetch(name, target, Path(scratch))}")
        except NotOffered as error:
            failed = failed or name in options.series
            print(f"CPython {name}: not fetched: {error}; `pyenv install {name}` builds it")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
