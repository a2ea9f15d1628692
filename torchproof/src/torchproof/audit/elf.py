"""One ELF file as plain data: everything the audit needs of a binary, read once."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from torchproof.audit import fatbin
from torchproof.audit.elf_file import (
    DT_BIND_NOW,
    DT_FLAGS,
    DT_FLAGS_1,
    DT_NEEDED,
    DT_RPATH,
    DT_RUNPATH,
    DT_TEXTREL,
    PT_GNU_RELRO,
    PT_GNU_STACK,
    SHN_ABS,
    SHN_UNDEF,
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    STV_DEFAULT,
    STV_PROTECTED,
    ElfFile,
    Entry,
    NotElfError,
)
from torchproof.audit.text import printable

# Marks the linker puts into every library; nobody calls them.
LINKER_MARKS = frozenset(
    {"_init", "_fini", "_end", "_edata", "_etext", "__bss_start", "__data_start", "end", "edata"}
    | {"_bss_end__", "__bss_end__", "__bss_start__", "__end__"}  # on aarch64
)
MACHINES = {
    3: "i686",
    21: "ppc64le",
    22: "s390x",
    40: "armv7l",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
MUSL = ("libc.so", "libc.musl-*.so.1")  # the names of its C library: its own, and Alpine's
FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
DEBUG_SECTIONS = (".debug_info", ".zdebug_info")
EXECUTABLE, NOW, NOW_1, TEXTREL = 0x1, 0x8, 0x1, 0x4
VERSION_LOCAL, VERSION_GLOBAL = 0, 1  # indices of a symbol without a version
LONGEST_COMMENT = 1 << 16


@dataclass(frozen=True, slots=True)
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
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: tuple[VersionNeed, ...]
    undefined: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]
    of_no_version: tuple[str, ...]  # whose version no table of the library has
    comments: tuple[str, ...]
    executable_stack: bool
    relro: bool
    bind_now: bool
    text_relocations: bool
    symbol_table: bool
    debug_info: bool
    device_code: fatbin.DeviceCode

    @property
    def search_path(self) -> tuple[str, ...]:
        """The folders in which it has the loader look, as it writes them."""
        return (*self.rpath, *self.runpath)

    @property
    def c_library(self) -> str:
        """The C library it is linked with: "glibc", "musl", or nothing where it has neither."""
        if "libc.so.6" in self.needed:
            return "glibc"
        return "musl" if any(fnmatch(name, of) for name in self.needed for of in MUSL) else ""


@dataclass(frozen=True)
class Provider:
    """A library on disk, as far as a search for symbols needs it."""

    path: Path
    machine: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: frozenset[str]  # that it defines
    defined: frozenset[str]  # symbols that others can bind to


def is_elf(path: Path) -> bool:
    """Whether a regular file begins as an ELF file does."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def read(path: Path) -> Elf:
    """Read the facts of one shared library.

    Raises:
        NotElfError: the file is no ELF shared library, or is damaged.
    """
    with path.open("rb") as stream:
        return _facts(path, ElfFile(stream))


def needed(path: Path) -> tuple[str, ...]:
    """The libraries that one names, read without its symbols.

    Raises:
        NotElfError: the file is no ELF shared library, or is damaged.
    """
    with path.open("rb") as stream:
        return ElfFile(stream).texts(DT_NEEDED)


def read_provider(path: Path) -> Provider:
    """Read what a library needs and gives.

    Raises:
        NotElfError: the file is no ELF shared library, or is damaged.
    """
    with path.open("rb") as stream:
        file = ElfFile(stream)
        return Provider(
            path=path,
            machine=machine(file),
            needed=file.texts(DT_NEEDED),
            rpath=_entries(file, DT_RPATH),
            runpath=_entries(file, DT_RUNPATH),
            versions=frozenset(file.version_definitions().values()),
            defined=frozenset(entry.name for entry in file.symbols if _is_defined(entry)),
        )


def _facts(path: Path, file: ElfFile) -> Elf:
    needs = {index: VersionNeed(*need) for index, need in file.version_needs().items()}
    flags = {segment.kind: segment.flags for segment in file.segments}
    tags = file.tags
    return Elf(
        path=path,
        machine=machine(file),
        needed=file.texts(DT_NEEDED),
        rpath=_entries(file, DT_RPATH),
        runpath=_entries(file, DT_RUNPATH),
        versions=tuple(dict.fromkeys(needs.values())),
        undefined=_undefined(file, needs),
        exported=_exported(file),
        of_no_version=_of_no_version(file, needs),
        comments=_comments(file),
        executable_stack=bool(flags.get(PT_GNU_STACK, EXECUTABLE) & EXECUTABLE),
        relro=PT_GNU_RELRO in flags,
        bind_now=DT_BIND_NOW in tags
        or bool(tags.get(DT_FLAGS, 0) & NOW or tags.get(DT_FLAGS_1, 0) & NOW_1),
        text_relocations=DT_TEXTREL in tags or bool(tags.get(DT_FLAGS, 0) & TEXTREL),
        symbol_table=".symtab" in file.sections,
        debug_info=any(name in file.sections for name in DEBUG_SECTIONS),
        device_code=_device_code(file),
    )


def _entries(file: ElfFile, tag: int) -> tuple[str, ...]:
    """The folders of a search path."""
    return tuple(entry for text in file.texts(tag) for entry in text.split(":"))


def machine(file: ElfFile) -> str:
    """The architecture as wheel tags spell it."""
    big_endian = {"ppc64le": "ppc64", "aarch64": "aarch64_be", "armv7l": "armv7b"}
    name = MACHINES.get(file.machine, f"machine{file.machine}")
    return big_endian.get(name, name) if file.order == ">" else name


def _undefined(file: ElfFile, needs: dict[int, VersionNeed]) -> tuple[Symbol, ...]:
    entries = file.symbols
    found = []
    for at in dict.fromkeys([*file.relocated(), *range(len(entries))]):
        if at >= len(entries):
            raise NotElfError(f"a relocation names symbol {at:,} of {len(entries):,}")
        entry = entries[at]
        if entry.section == SHN_UNDEF and entry.name:
            need = needs.get(entry.version)
            version, library = (need.version, need.library) if need else (None, None)
            found.append(Symbol(entry.name, version, library, entry.binding == STB_WEAK))
    return tuple(found)


def _of_no_version(file: ElfFile, needs: Iterable[int]) -> tuple[str, ...]:
    known = {VERSION_LOCAL, VERSION_GLOBAL, *needs, *file.version_definitions()}
    return tuple(entry.name for entry in file.symbols if entry.version not in known)


def _is_defined(entry: Entry) -> bool:
    return bool(entry.name) and entry.section != SHN_UNDEF and entry.binding != STB_LOCAL


def _exported(file: ElfFile) -> tuple[Symbol, ...]:
    """The symbols that other libraries can bind to."""
    return tuple(
        Symbol(entry.name, weak=entry.binding != STB_GLOBAL)
        for entry in file.symbols
        if _is_defined(entry)
        and entry.section != SHN_ABS
        and entry.visibility in {STV_DEFAULT, STV_PROTECTED}
        and entry.name not in LINKER_MARKS
    )


def _comments(file: ElfFile) -> tuple[str, ...]:
    section = file.sections.get(".comment")
    if section is None:
        return ()
    data = file.read(section.offset, min(section.size, LONGEST_COMMENT), "the .comment section")
    return tuple(dict.fromkeys(printable(text) for text in data.split(b"\0") if text))


def _device_code(file: ElfFile) -> fatbin.DeviceCode:
    """Its GPU programs, from their sections; from the whole file where no section is named."""
    if not file.sections:
        return fatbin.search(file.stream, file.size)
    found = [file.sections[name] for name in FATBIN_SECTIONS if name in file.sections]
    for section in found:
        file.read(section.offset + section.size, 0, f"the section {section.name}")
    return fatbin.read(file.stream, [(section.offset, section.size) for section in found])
