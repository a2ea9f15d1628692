"""The libraries of this machine, found as its loader finds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from platform import machine as this_machine
from typing import TYPE_CHECKING

from auditwheel.lddtree import load_ld_paths
from auditwheel.libc import Libc
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection
from elftools.elf.hash import GNUHashSection

from torchproof.audit import elf as elf_reader
from torchproof.audit.policy import Ceilings, newest

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Provider:
    """A library on disk, as far as a search for symbols needs it."""

    path: Path
    machine: str
    needed: tuple[str, ...]
    versions: frozenset[str]


@cache
def read_provider(path: Path) -> Provider:
    """What a library needs, and the symbol versions it defines."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        definitions = elf.get_section_by_name(".gnu.version_d")
        return Provider(
            path=path,
            machine=elf_reader.machine(elf),
            needed=elf_reader.needed(elf),
            versions=frozenset(next(names).name for _, names in definitions.iter_versions())
            if isinstance(definitions, GNUVerDefSection)
            else frozenset(),
        )


def find_library(name: str, folders: Iterable[Path], machine: str) -> Provider | None:
    """The first library of that name, for that machine."""
    for folder in folders:
        path = folder / name
        if path.is_file() and (found := read_provider(path)).machine == machine:
            return found
    return None


def find_symbols(path: Path, names: Iterable[str]) -> list[str]:
    """Those of the names that a library exports, by its own hash table."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        table = elf.get_section_by_name(".gnu.hash")
        if not isinstance(table, GNUHashSection):
            exported = {symbol.name for symbol in elf_reader.exported(elf)}
            return [name for name in names if name in exported]
        return [name for name in names if table.get_symbol(name) is not None]


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
