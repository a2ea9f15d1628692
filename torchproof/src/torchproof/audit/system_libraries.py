"""The libraries of this machine, found as its loader finds them."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from platform import machine as this_machine

from auditwheel.lddtree import load_ld_paths
from auditwheel.libc import Libc

from torchproof.audit import elf
from torchproof.audit.elf import Provider
from torchproof.audit.elf_file import NotElfError
from torchproof.audit.policy import Ceilings, newest


@cache
def read_provider(path: Path) -> Provider | None:
    """What a library needs and gives; None where the loader could not read it either."""
    try:
        return elf.read_provider(path)
    except (NotElfError, OSError):
        return None


def find_library(name: str, folders: Iterable[Path], machine: str) -> Provider | None:
    """The first library of that name, for that machine."""
    for folder in folders:
        path = folder / name
        if path.is_file() and (found := read_provider(path)) and found.machine == machine:
            return found
    return None


def interpreter_libraries(environment: Path) -> list[Path]:
    """Where the CPython of a virtual environment brings system libraries of its own."""
    settings = environment / "pyvenv.cfg"
    lines = settings.read_text(encoding="utf-8").splitlines() if settings.is_file() else []
    pairs = (line.partition("=") for line in lines)
    homes = [Path(value.strip()) for name, _, value in pairs if name.strip() == "home"]
    return [folder for home in homes for folder in sorted(home.parent.glob("lib/*-linux-gnu"))]


def library_folders() -> list[Path]:
    """Where the loader of this machine looks when no search path helps it."""
    folders = load_ld_paths(Libc.GLIBC)
    return [Path(folder) for folder in (*folders["env"], *folders["conf"])]


@cache
def system_ceilings() -> Ceilings:
    """The newest symbol versions that this machine provides; None where a library is not there."""
    libraries = [
        find_library(name, library_folders(), this_machine())
        for name in ("libc.so.6", "libstdc++.so.6")
    ]
    versions = [version for found in libraries if found for version in found.versions]
    return Ceilings(
        glibc=newest(versions, "GLIBC"),
        glibcxx=newest(versions, "GLIBCXX"),
        cxxabi=newest(versions, "CXXABI"),
    )
