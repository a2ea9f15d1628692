"""Take the GPU programs out of a CUDA torch that stands on link stubs.

They are nine tenths of it, and beside stubs, which find no GPU, nothing reads them. Out of the
file, that is: in the library's address space they are zeros. What is behind them moves up in the
file by whole pages, and keeps its address.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

# The section that nvcc puts machine code and PTX for GPUs in.
SECTION = ".nv_fatbin"
# Elf64_Phdr and Elf64_Shdr of the ELF specification, fields in their order.
SEGMENT_ENTRY = struct.Struct("<IIQQQQQQ")
SECTION_ENTRY = struct.Struct("<IIQQQQIIQQ")
# Where Elf64_Ehdr holds the offset of the section headers.
SECTION_HEADERS = 0x28
LOAD, NOTE, NO_BITS = 1, 4, 8
# Fields of SECTION_ENTRY.
KIND, OFFSET = 1, 4


@dataclass(frozen=True)
class Segment:
    """Elf64_Phdr."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    in_file: int
    in_memory: int
    align: int

    def holds(self, begin: int, end: int) -> bool:
        """Whether that part of the file is loaded with it."""
        return self.kind == LOAD and self.offset <= begin and end <= self.offset + self.in_file


@dataclass(frozen=True)
class Cut:
    """The part of a file that goes; whole pages."""

    begin: int
    end: int

    def moved(self, offset: int) -> int:
        """Where in the file something is afterwards."""
        return offset - (self.end - self.begin) if offset >= self.end else offset


def strip_fatbin(library: Path) -> int:
    """Take the GPU programs out of a shared library, and return by how many bytes it is shorter.

    A library without them, or with less than a page, stays as it is. The note with the build's id
    is no longer loaded: its entry is needed to load what is behind the programs.

    Raises:
        ValueError: there is no such note.
    """
    with library.open("r+b") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(SECTION)
        if section is None:
            return 0
        segments = _segments(file, elf)
        begin, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
        holder = next(segment for segment in segments if segment.holds(begin, end))
        cut = Cut(begin + -begin % holder.align, end - end % holder.align)
        if cut.begin >= cut.end:
            return 0
        note = next((segment for segment in segments if segment.kind == NOTE), None)
        if note is None:
            raise ValueError(f"{library.name} has no note whose place in its header could be used")
        segments.remove(note)
        _write_segments(file, elf, _without(segments, holder, cut))
        _write_sections(file, elf, cut)
        file.seek(cut.end)
        behind = file.read()
        file.truncate(cut.begin)
        file.seek(cut.begin)
        file.write(behind)
    return cut.end - cut.begin


def _segments(file: BinaryIO, elf: ELFFile) -> list[Segment]:
    file.seek(elf["e_phoff"])
    table = file.read(elf["e_phnum"] * SEGMENT_ENTRY.size)
    return [Segment(*fields) for fields in SEGMENT_ENTRY.iter_unpack(table)]


def _without(segments: list[Segment], holder: Segment, cut: Cut) -> list[Segment]:
    """The segments around the cut, with two in the holder's place."""
    gone = cut.end - holder.offset
    before = replace(holder, in_file=cut.begin - holder.offset, in_memory=gone)
    behind = replace(
        holder,
        offset=cut.begin,
        address=holder.address + gone,
        physical=holder.physical + gone,
        in_file=holder.in_file - gone,
        in_memory=holder.in_memory - gone,
    )
    found = []
    for segment in segments:
        if segment is holder:
            found += [before, behind]
        else:
            found.append(replace(segment, offset=cut.moved(segment.offset)))
    return found


def _write_segments(file: BinaryIO, elf: ELFFile, segments: list[Segment]) -> None:
    file.seek(elf["e_phoff"])
    file.write(b"".join(SEGMENT_ENTRY.pack(*astuple(segment)) for segment in segments))


def _write_sections(file: BinaryIO, elf: ELFFile, cut: Cut) -> None:
    names = [section.name for section in elf.iter_sections()]
    file.seek(elf["e_shoff"])
    table = bytearray(file.read(len(names) * SECTION_ENTRY.size))
    for number, name in enumerate(names):
        fields = list(SECTION_ENTRY.unpack_from(table, number * SECTION_ENTRY.size))
        if name == SECTION:
            fields[KIND] = NO_BITS
        fields[OFFSET] = cut.moved(fields[OFFSET])
        SECTION_ENTRY.pack_into(table, number * SECTION_ENTRY.size, *fields)
    file.seek(elf["e_shoff"])
    file.write(table)
    file.seek(SECTION_HEADERS)
    file.write(struct.pack("<Q", cut.moved(elf["e_shoff"])))
