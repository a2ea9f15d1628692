"""One ELF file as plain data: everything the audit asks of a binary, read once with pyelftools."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment, DynamicTag
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Symbol as ElfSymbol
from elftools.elf.sections import SymbolTableSection

if TYPE_CHECKING:
    from pathlib import Path

# Marks the linker puts into every library; nobody calls them.
LINKER_MARKS = frozenset(
    {"_init", "_fini", "_end", "_edata", "_etext", "__bss_start", "__data_start", "end", "edata"}
    | {"_bss_end__", "__bss_end__", "__bss_start__", "__end__"}  # on aarch64
)
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_PPC64": "ppc64le"}
FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
VERSION_INDEX = 0x7FFF  # the top bit of a .gnu.version entry says "hidden"


class NotElfError(ValueError):
    """The file is no ELF shared library."""


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; `version` and `library` are what the linker bound an undefined one to."""

    name: str
    version: str | None = None
    library: str | None = None
    weak: bool = False


@dataclass(frozen=True)
class VersionNeed:
    """One symbol version (`GLIBC_2.14`) that a library (`libc.so.6`) must define."""

    library: str
    version: str


@dataclass(frozen=True)
class Elf:
    """The facts of one shared library; `undefined` is in the order in which the loader binds."""

    path: Path
    machine: str
    soname: str | None
    needed: tuple[str, ...]
    search_path: tuple[str, ...]  # entries of DT_RPATH and DT_RUNPATH
    versions: tuple[VersionNeed, ...]
    undefined: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]
    comments: tuple[str, ...]
    executable_stack: bool
    relro: bool
    bind_now: bool
    text_relocations: bool
    symbol_table: bool
    debug_info: bool
    fatbin: bytes


def is_elf(path: Path) -> bool:
    """Say whether the file begins as an ELF file does."""
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def read(path: Path) -> Elf:
    """Read the facts of one shared library.

    Raises:
        NotElfError: the file is no ELF shared library, or is damaged.
    """
    try:
        with path.open("rb") as stream:
            return _facts(path, ELFFile(stream))
    except (ELFError, UnicodeDecodeError, AttributeError, KeyError) as error:
        raise NotElfError(f"{path} is not a readable ELF shared library: {error}") from error


def _facts(path: Path, elf: ELFFile) -> Elf:
    dynamic = _dynamic(elf)
    flags = _segment_flags(elf)
    needs = _version_needs(elf)
    return Elf(
        path=path,
        machine=machine(elf),
        soname=next(iter(_strings(dynamic, "DT_SONAME")), None),
        needed=needed(elf),
        search_path=tuple(
            entry
            for text in _strings(dynamic, "DT_RPATH", "DT_RUNPATH")
            for entry in text.split(":")
        ),
        versions=tuple(dict.fromkeys(needs.values())),
        undefined=_undefined(elf, needs),
        exported=exported(elf),
        comments=_comments(elf),
        executable_stack=bool(flags.get("PT_GNU_STACK", 1) & 1),
        relro="PT_GNU_RELRO" in flags,
        bind_now=_flagged(dynamic, "DT_BIND_NOW", DT_FLAGS=0x8, DT_FLAGS_1=0x1),
        text_relocations=_flagged(dynamic, "DT_TEXTREL", DT_FLAGS=0x4),
        symbol_table=elf.get_section_by_name(".symtab") is not None,
        debug_info=any(
            elf.get_section_by_name(name) is not None for name in (".debug_info", ".zdebug_info")
        ),
        fatbin=b"".join(
            section.data() for name in FATBIN_SECTIONS if (section := elf.get_section_by_name(name))
        ),
    )


def _dynamic(elf: ELFFile) -> list[DynamicTag]:
    for segment in elf.iter_segments():
        if isinstance(segment, DynamicSegment):
            return list(segment.iter_tags())
    raise ELFError("it has no dynamic section, so it is an object file or a static program")


def _segment_flags(elf: ELFFile) -> dict[str, int]:
    return {str(segment["p_type"]): int(segment["p_flags"]) for segment in elf.iter_segments()}


def _strings(dynamic: list[DynamicTag], *kinds: str) -> tuple[str, ...]:
    """The texts of some dynamic tags; pyelftools names each attribute after its tag."""
    return tuple(
        str(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
        for tag in dynamic
        if tag.entry.d_tag in kinds
    )


def needed(elf: ELFFile) -> tuple[str, ...]:
    """The libraries it names as NEEDED."""
    return _strings(_dynamic(elf), "DT_NEEDED")


def _flagged(dynamic: list[DynamicTag], own_tag: str, **bits: int) -> bool:
    """Whether a dynamic property is set, by a tag of its own or by a bit of DT_FLAGS(_1)."""
    return any(
        tag.entry.d_tag == own_tag or bool(tag.entry.d_val & bits.get(str(tag.entry.d_tag), 0))
        for tag in dynamic
    )


def _version_needs(elf: ELFFile) -> dict[int, VersionNeed]:
    """What each index of .gnu.version stands for."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    return {
        auxiliary["vna_other"] & VERSION_INDEX: VersionNeed(str(need.name), auxiliary.name)
        for need, auxiliaries in section.iter_versions()
        for auxiliary in auxiliaries
    }


def _version_indices(elf: ELFFile) -> list[int]:
    """The .gnu.version entry of each dynamic symbol; empty when nothing is versioned."""
    section = elf.get_section_by_name(".gnu.version")
    if section is None:
        return []
    order = "<" if elf.little_endian else ">"
    return [index & VERSION_INDEX for (index,) in struct.iter_unpack(f"{order}H", section.data())]


def _dynamic_symbols(elf: ELFFile) -> list[ElfSymbol]:
    section = elf.get_section_by_name(".dynsym")
    return list(section.iter_symbols()) if isinstance(section, SymbolTableSection) else []


def _binding_order(elf: ELFFile) -> list[int]:
    """Indices of dynamic symbols as the loader meets them: data first, then calls."""
    order: dict[int, None] = {}
    for name in (".rela.dyn", ".rel.dyn", ".rela.plt", ".rel.plt"):
        section = elf.get_section_by_name(name)
        if isinstance(section, RelocationSection):
            order.update(dict.fromkeys(entry["r_info_sym"] for entry in section.iter_relocations()))
    return list(order)


def _undefined(elf: ELFFile, needs: dict[int, VersionNeed]) -> tuple[Symbol, ...]:
    symbols, indices = _dynamic_symbols(elf), _version_indices(elf)
    order = dict.fromkeys([*_binding_order(elf), *range(1, len(symbols))])
    found = []
    for at in order:
        symbol = symbols[at]
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
            continue
        need = needs.get(indices[at]) if indices else None
        weak = symbol["st_info"]["bind"] == "STB_WEAK"
        version, library = (need.version, need.library) if need else (None, None)
        found.append(Symbol(symbol.name, version, library, weak))
    return tuple(found)


def machine(elf: ELFFile) -> str:
    """The architecture as wheel tags spell it."""
    return MACHINES.get(elf["e_machine"], str(elf["e_machine"]))


def exported(elf: ELFFile) -> tuple[Symbol, ...]:
    """The symbols that other libraries can bind to."""
    return tuple(
        Symbol(symbol.name, weak=symbol["st_info"]["bind"] != "STB_GLOBAL")
        for symbol in _dynamic_symbols(elf)
        if symbol.name
        and symbol["st_shndx"] not in {"SHN_UNDEF", "SHN_ABS"}
        and symbol["st_info"]["bind"] != "STB_LOCAL"
        and symbol["st_other"]["visibility"] in {"STV_DEFAULT", "STV_PROTECTED"}
        and symbol.name not in LINKER_MARKS
    )


def _comments(elf: ELFFile) -> tuple[str, ...]:
    section = elf.get_section_by_name(".comment")
    if section is None:
        return ()
    texts = section.data().decode("utf-8", "replace").split("\0")
    return tuple(dict.fromkeys(text for text in texts if text))
