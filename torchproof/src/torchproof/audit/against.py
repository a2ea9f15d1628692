"""Will a library load into a torch installation? The loader's own search, done without loading.

A library that Python opens finds a symbol in the interpreter, then in itself and the libraries it
names, breadth first. `import torch` has loaded most of torch's libraries by then, so a NEEDED entry
that names one of those is found by name alone; the others are out of its reach, though they are in
the same folder. So is a library of the same package to which no search path leads: a package may
load it first, which no file but its Python shows, so the verdict on the other is that it fails, and
says when it loads. One to which a path leads is bound together with it, and what that lacks refuses
both. The names of CPython's C API are taken as given.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from torchproof.audit import symbols
from torchproof.audit.elf import Elf, Provider, read
from torchproof.audit.elf_file import NotElfError
from torchproof.audit.facts import Facts
from torchproof.audit.system_libraries import (
    find_library,
    interpreter_libraries,
    library_folders,
    read_provider,
)
from torchproof.audit.torch_import import loaded
from torchproof.audit.torches import Torch

Outcome = Literal["loads", "fails", "unsafe"]


@dataclass(frozen=True)
class Verdict:
    """What happens when a library is loaded into one torch; `reason` is one sentence.

    `missing` holds every symbol, version or library that is not there, in the order in which the
    loader complains; a library of the package that is out of reach is in `reason` alone.
    """

    torch: str
    path: str
    outcome: Outcome
    reason: str
    missing: tuple[str, ...] = ()


def resolve(
    elf: Elf, facts: Facts, torch: Torch, built_on: str | None, siblings: Iterable[Path] = ()
) -> Verdict:
    """Say what happens when a library is loaded into one torch, beside `siblings` of its package.

    `built_on` is the torch series whose headers it was compiled against; None when nobody says.
    """

    def verdict(outcome: Outcome, reason: str, missing: Iterable[str] = ()) -> Verdict:
        return Verdict(torch.version, str(torch.path), outcome, reason, tuple(missing))

    search = Search(loaded(torch.path), tuple(_system_folders(torch)), elf.machine)
    core = torch.path / "lib" / "libtorch_cpu.so"
    if core.is_file() and (own := read_provider(core)) and own.machine != elf.machine:
        return verdict("fails", f"it is for {elf.machine}, this torch for {own.machine}")
    found, lost = search.everything(elf)
    if lost:
        beside = {path.name: path for path in siblings}
        absent = [name for name in lost if name not in beside]
        if absent:
            return verdict("fails", f"the library {absent[0]} is not there", absent)
        name, needing = next(iter(lost.items()))
        return verdict("fails", _out_of_reach(beside[name], needing))
    # The loader binds what the library brings along, too, and refuses it for any of that.
    bound = (elf, *search.brought(found.values()))
    if newer := _too_new(bound, found):
        first, whose = next(iter(newer.items()))
        return verdict("fails", f"{first} is too new for this system{_named(whose, elf)}", newer)
    if missing := _missing(bound, found.values()):
        first, whose = next(iter(missing.items()))
        symbol = symbols.brief(first)
        return verdict("fails", f"undefined symbol: {symbol}{_named(whose, elf)}", missing)
    unsafe = danger(facts, torch, built_on)
    return verdict("unsafe", unsafe) if unsafe else verdict("loads", "every symbol is there")


def danger(facts: Facts, torch: Torch, built_on: str | None) -> str | None:
    """Why a library whose every symbol is there must not be loaded all the same."""
    if facts.binding == "native" and built_on is None:
        return "a native library, and nothing says which torch it was built on"
    if facts.binding == "native" and built_on != torch.series:
        return f"a native library built on torch {built_on}: layouts differ where names agree"
    # A run-time inside the library is nobody else's: it shares the driver's context, no symbol.
    major = facts.cuda_runtime
    if major and torch.cuda and major != int(torch.cuda.split(".")[0]):
        return f"it brings the run-time of CUDA {major} into a torch on CUDA {torch.cuda}"
    return None


@dataclass(frozen=True)
class Search:
    """Where the loader finds a library: by its name where it is loaded, else in folders."""

    loaded: dict[str, Path]
    system: tuple[Path, ...]
    machine: str

    def find(self, name: str, folders: Iterable[Path]) -> Provider | None:
        """The library of that name, for that machine."""
        first = [self.loaded[name].parent] if name in self.loaded else []
        return find_library(name, (*first, *folders, *self.system), self.machine)

    def everything(self, elf: Elf) -> tuple[dict[str, Provider], dict[str, Path]]:
        """All that a library brings along, by name, and of what is not found, which needs it.

        RPATH is for what its libraries need, too; RUNPATH is not, and its RPATH is no more.
        """
        found: dict[str, Provider] = {}
        lost: dict[str, Path] = {}
        queue: deque[tuple[Elf | Provider, tuple[Path, ...]]] = deque([(elf, ())])
        while queue:
            library, inherited = queue.popleft()
            own = () if library.runpath else library.rpath
            rpath = (*_folders(own, library.path), *inherited)
            folders = tuple(_folders(library.runpath, library.path)) or rpath
            for name in library.needed:
                provider = None if name in found else self.find(name, folders)
                if provider:
                    found[name] = provider
                    queue.append((provider, rpath))
                elif name not in found and library.path not in self.loaded.values():
                    lost.setdefault(name, library.path)
        return found, lost

    def brought(self, found: Iterable[Provider]) -> Iterator[Elf]:
        """What was found of the package's own: neither torch nor the system has it."""
        there = set(self.loaded.values())
        for provider in found:
            own = provider.path not in there and provider.path.parent not in self.system
            if own and (whole := _read_whole(provider.path)):
                yield whole


@cache
def _read_whole(path: Path) -> Elf | None:
    """A library that another brings along; None where its own report says that it is damaged."""
    try:
        return read(path)
    except (NotElfError, OSError):
        return None


def _folders(search_path: Iterable[str], library: Path) -> Iterator[Path]:
    """A library's search path as folders."""
    origin = str(library.parent)
    for entry in search_path:
        yield Path(entry.replace("$ORIGIN", origin).replace("${ORIGIN}", origin))


def _out_of_reach(sibling: Path, needing: Path) -> str:
    folder = Path("$ORIGIN", os.path.relpath(sibling.parent, needing.parent))
    return (
        f"{needing.name} has no search path to {sibling.name}, in {folder}: it loads only after"
        " something else has loaded that"
    )


def _system_folders(torch: Torch) -> Iterator[Path]:
    """The folders in which the loader looks where no search path leads, in order."""
    prefix = torch.path.parents[3]
    if (prefix / "conda-meta").is_dir():
        yield prefix / "lib"
    yield from interpreter_libraries(prefix)
    yield from library_folders()


def _too_new(bound: Iterable[Elf], found: Mapping[str, Provider]) -> dict[str, Elf]:
    """The symbol versions that are not in the library that was found, and which needs them."""
    newer: dict[str, Elf] = {}
    for each in bound:
        for need in each.versions:
            provider = found.get(need.library)
            if provider and provider.versions and need.version not in provider.versions:
                newer.setdefault(f"{need.version} of {need.library}", each)
    return newer


def _missing(bound: Sequence[Elf], providers: Iterable[Provider]) -> dict[str, Elf]:
    """The symbols that no library in reach defines, in the order of binding, and which needs them.

    What is needed is bound before what needs it.
    """
    wanted: dict[str, Elf] = {}
    for each in reversed(bound):
        for symbol in each.undefined:
            if not symbol.weak and not symbols.is_python(symbol.name):
                wanted.setdefault(symbol.name, each)
    of_itself = frozenset(symbol.name for symbol in bound[0].exported)
    for defined in (of_itself, *(provider.defined for provider in providers)):
        for name in defined.intersection(wanted):
            del wanted[name]
    return wanted


def _named(needing: Elf, elf: Elf) -> str:
    return "" if needing is elf else f", which {needing.path.name} needs"
