"""An ELF file as its loader sees it: segments, dynamic tags, symbols, relocations.

The program headers lead to all of it, so a library without a section table is read as well. The
sections serve only for what no loader looks at. Nothing in the file is trusted: an offset and a
size are checked against the file before they are used, and each table has a limit.

Not pyelftools (0.33): the 75,591 symbols of libtorch_cpu.so take it 3.4 s by the section table and
16 s without (here 0.3 s, versions included), and without that table it reads no symbol versions.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, NamedTuple

from torchproof.audit.text import printable
from torchproof.errors import TorchproofError

# Far above any real library: libtorch_cuda.so has some 10^5 symbols.
MOST_SYMBOLS = 1 << 22
MOST_NAME_BYTES = 1 << 28
MOST_VERSIONS = 1 << 14
MOST_DYNAMIC_BYTES = 1 << 20
LONGEST_NAME = 1 << 16
CHUNK = 1 << 20

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ = 1, 2, 4, 5, 6, 7, 8
DT_STRSZ, DT_RPATH, DT_REL, DT_RELSZ, DT_PLTREL, DT_TEXTREL = 10, 15, 17, 18, 20, 22
DT_JMPREL, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 23, 24, 29, 30
DT_GNU_HASH, DT_VERSYM, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB
DT_VERDEF, DT_VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
SHT_NOBITS, SHT_DYNSYM = 8, 11
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_OBJECT = 1
STV_DEFAULT, STV_PROTECTED = 0, 3
SHN_UNDEF, SHN_ABS = 0, 0xFFF1
VERSION_INDEX = 0x7FFF  # the top bit of a .gnu.version entry says "hidden"


class NotElfError(TorchproofError):
    """The file is no ELF shared library, or is damaged."""


@dataclass(frozen=True)
class Width:
    """The layouts of one ELF class, 32 or 64 bits, for `struct`."""

    header: str
    segment: str
    section: str
    dynamic: str
    symbol: str
    word: str
    symbol_of_relocation: int  # r_info >> this


WIDTHS = {
    1: Width("HHIIIIIHHHHHH", "8I", "10I", "II", "IIIBBH", "I", 8),
    2: Width("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "QQ", "IBBHQQ", "Q", 32),
}
IDENT = 16


class Segment(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    size: int


class Section(NamedTuple):
    """A section header."""

    name: str
    kind: int
    address: int
    offset: int
    size: int


class Entry(NamedTuple):
    """A dynamic symbol; `version` is its index into the version tables."""

    name: str
    binding: int
    kind: int
    visibility: int
    section: int
    version: int


class ElfFile:
    """An open ELF file."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.size = stream.seek(0, 2)
        ident = self.read(0, IDENT, "the ELF header")
        if ident[:4] != b"\x7fELF" or ident[4] not in WIDTHS or ident[5] not in {1, 2}:
            raise NotElfError(f"it does not begin as an ELF file does, but with {ident[:6].hex()}")
        self.width = WIDTHS[ident[4]]
        self.order = "<" if ident[5] == 1 else ">"
        (header,) = self.table(self.width.header, IDENT, 1, "the ELF header")
        _, self.machine, _, _, self._phoff, self._shoff = header[:6]
        self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = header[8:]

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Some bytes of the file."""
        if offset + size > self.size:
            raise NotElfError(
                f"{what} would end at byte {offset + size:,}, and the file at {self.size:,}"
            )
        self.stream.seek(offset)
        return self.stream.read(size)

    def table(self, entry: str, offset: int, count: int, what: str) -> list[tuple[int, ...]]:
        """Some entries of one layout."""
        layout = struct.Struct(self.order + entry)
        return list(layout.iter_unpack(self.read(offset, count * layout.size, what)))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The program headers.

        Raises:
            NotElfError: a segment that is loaded reaches beyond the end of the file.
        """
        rows = self._headers(self.width.segment, self._phoff, self._phnum, self._phentsize)
        if self.width is WIDTHS[2]:
            found = tuple(Segment(r[0], r[1], r[2], r[3], r[5]) for r in rows)
        else:
            found = tuple(Segment(r[0], r[6], r[1], r[2], r[4]) for r in rows)
        for segment in found:
            if segment.kind == PT_LOAD:
                self.read(segment.offset + segment.size, 0, "a segment")
        return found

    @cached_property
    def sections(self) -> dict[str, Section]:
        """The section headers by name; empty where the table was stripped."""
        if not self._shoff or not self._shnum:
            return {}
        rows = self._headers(self.width.section, self._shoff, self._shnum, self._shentsize)
        if self._shstrndx >= len(rows):
            return {}
        names = self.read(rows[self._shstrndx][4], rows[self._shstrndx][5], "the section names")
        found = (Section(_text(names, row[0]), row[1], row[3], row[4], row[5]) for row in rows)
        return {section.name: section for section in found if section.kind != SHT_NOBITS}

    def _headers(self, entry: str, offset: int, count: int, size: int) -> list[tuple[int, ...]]:
        expected = struct.calcsize(self.order + entry)
        if count and size != expected:
            raise NotElfError(f"a header of its tables has {size} bytes instead of {expected}")
        return self.table(entry, offset, count, "a table of headers")

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """The dynamic tags and their values, in file order."""
        for segment in self.segments:
            if segment.kind == PT_DYNAMIC:
                size = struct.calcsize(self.order + self.width.dynamic)
                count = min(segment.size, MOST_DYNAMIC_BYTES) // size
                rows = self.table(self.width.dynamic, segment.offset, count, "the dynamic tags")
                end = next((at for at, (tag, _) in enumerate(rows) if not tag), len(rows))
                return tuple((row[0], row[1]) for row in rows[:end])
        raise NotElfError("it has no dynamic tags, so it is an object file or a static program")

    @cached_property
    def tags(self) -> dict[int, int]:
        """The value of each dynamic tag that appears once."""
        return dict(self.dynamic)

    def texts(self, kind: int) -> tuple[str, ...]:
        """The texts of a dynamic tag, in file order."""
        return tuple(_text(self._names, at) for tag, at in self.dynamic if tag == kind)

    @cached_property
    def _names(self) -> bytes:
        size = self.tags.get(DT_STRSZ, 0)
        return self.read(self._mapped(DT_STRTAB), size, "the dynamic string table") if size else b""

    def _offset(self, address: int) -> int:
        """Where in the file an address is that the loader would map."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and 0 <= address - segment.address < segment.size:
                return segment.offset + address - segment.address
        raise NotElfError(f"no segment of the file holds the address {address:#x}")

    def _mapped(self, tag: int) -> int:
        if tag not in self.tags:
            raise NotElfError(f"it lacks the dynamic tag {tag:#x}")
        return self._offset(self.tags[tag])

    def relocated(self) -> Iterator[int]:
        """Indices of dynamic symbols in the order in which the loader binds them."""
        with_addend = self.tags.get(DT_PLTREL, DT_RELA) == DT_RELA
        for start, size, addend in (
            (DT_REL, DT_RELSZ, False),
            (DT_RELA, DT_RELASZ, True),
            (DT_JMPREL, DT_PLTRELSZ, with_addend),
        ):
            if self.tags.get(size):
                yield from self._relocations(self._mapped(start), self.tags[size], addend)

    def _relocations(self, offset: int, size: int, addend: bool) -> Iterator[int]:
        word, shift = self.width.word, self.width.symbol_of_relocation
        layout = struct.Struct(self.order + word * (3 if addend else 2))
        step = CHUNK // layout.size * layout.size
        for at in range(0, size - size % layout.size, step):
            data = self.read(offset + at, min(step, size - at), "a table of relocations")
            data = data[: len(data) - len(data) % layout.size]
            yield from (row[1] >> shift for row in layout.iter_unpack(data) if row[1] >> shift)

    @cached_property
    def symbols(self) -> tuple[Entry, ...]:
        """The dynamic symbols by index; the first is empty."""
        count = self._symbol_count
        if count > MOST_SYMBOLS:
            raise NotElfError(f"it claims {count:,} symbols, and {MOST_SYMBOLS:,} are read at most")
        if not count:
            return ()
        rows = self.table(self.width.symbol, self._mapped(DT_SYMTAB), count, "the symbol table")
        versions = self._version_indices(count)
        names, budget = self._names, MOST_NAME_BYTES
        found = []
        for at, row in enumerate(rows):
            info, other, section = row[1:4] if self.width is WIDTHS[2] else row[3:6]
            name = _text(names, row[0])
            budget -= len(name)
            if budget < 0:
                raise NotElfError(f"the names of its symbols are over {MOST_NAME_BYTES:,} bytes")
            found.append(Entry(name, info >> 4, info & 0xF, other & 3, section, versions[at]))
        return tuple(found)

    @cached_property
    def _symbol_count(self) -> int:
        """The loader needs no count: the section table has it, else hashes and relocations do."""
        if DT_SYMTAB not in self.tags:
            return 0
        for section in self.sections.values():
            if section.kind == SHT_DYNSYM and section.address == self.tags[DT_SYMTAB]:
                return section.size // struct.calcsize(self.order + self.width.symbol)
        relocated = max(self.relocated(), default=0) + 1
        if DT_HASH in self.tags:
            ((_, chains),) = self.table("II", self._mapped(DT_HASH), 1, "the hash table")
            return max(chains, relocated)
        return max(self._hashed() if DT_GNU_HASH in self.tags else 0, relocated)

    def _hashed(self) -> int:
        """One more than the last index in the GNU hash table; its last chain ends there."""
        start = self._mapped(DT_GNU_HASH)
        ((buckets, first, bloom, _),) = self.table("4I", start, 1, "the hash table")
        if max(buckets, first) > MOST_SYMBOLS:
            return MOST_SYMBOLS + 1
        start += 16 + bloom * struct.calcsize(self.order + self.width.word)
        last = max((row[0] for row in self.table("I", start, buckets, "the hash table")), default=0)
        if last < first:
            return first
        chains = start + 4 * (buckets - first)
        while not self.table("I", chains + 4 * last, 1, "the hash table")[0][0] & 1:
            last += 1
            if last > MOST_SYMBOLS:
                break
        return last + 1

    def _version_indices(self, count: int) -> list[int]:
        if DT_VERSYM not in self.tags:
            return [0] * count
        rows = self.table("H", self._mapped(DT_VERSYM), count, "the version of each symbol")
        return [index & VERSION_INDEX for (index,) in rows]

    def version_needs(self) -> dict[int, tuple[str, str]]:
        """The library and the version that each version index stands for."""
        return {
            index & VERSION_INDEX: (_text(self._names, library), _text(self._names, version))
            for (_, _, library, *_), auxiliaries in self._versions(DT_VERNEED, "HHIII", "IHHII")
            for _, _, index, version, _ in auxiliaries
        }

    def version_definitions(self) -> dict[int, str]:
        """The version that it defines for each version index."""
        return {
            index & VERSION_INDEX: _text(self._names, names[0][0])
            for (_, _, index, *_), names in self._versions(DT_VERDEF, "HHHHIII", "II")
            if names
        }

    def _versions(
        self, tag: int, entry: str, auxiliary: str
    ) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """The rows of a version table, each with its own list: both are linked by distances."""
        if tag not in self.tags:
            return
        at, left = self._mapped(tag), MOST_VERSIONS
        while True:
            row = self.table(entry, at, 1, "a version table")[0]
            count, inner = (row[3], row[5]) if tag == DT_VERDEF else (row[1], row[3])
            found, where = [], at + inner
            left -= 1 + count
            if left < 0:
                raise NotElfError(f"it has more than {MOST_VERSIONS:,} symbol versions")
            for _ in range(count):
                found.append(self.table(auxiliary, where, 1, "a version table")[0])
                where += found[-1][-1]
            yield row, found
            if not row[-1]:
                return
            at += row[-1]


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at, at + LONGEST_NAME)
    if at >= len(names) or end < 0:
        raise NotElfError(f"no name of at most {LONGEST_NAME:,} bytes is at {at:,} of its strings")
    return printable(names[at:end])
