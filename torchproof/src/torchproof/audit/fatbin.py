"""The GPU images inside a library: which architectures, binary or PTX, made by which CUDA release.

Read from the fat binary itself, because few CUDA installations have `cuobjdump`. A library may have
a gigabyte of it, so only its headers are held in memory. The layout, as `fatbinary` of CUDA 11 to
13 writes it (little-endian):

    container  u32 magic 0xBA55ED50 | u16 version | u16 header bytes | u64 bytes of entries
    entry      u16 kind (1 PTX, 2 cubin) | u16 version | u32 header bytes | u64 payload bytes
               | u32 compressed bytes | u32 options at | u16 minor | u16 major | u32 arch
               | u32 name at | u32 name bytes | u64 flags
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from torchproof.audit.elf_file import CHUNK, NotElfError

MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQ")
PTX, CUBIN = 1, 2
SUFFIXES = {0x100000: "a", 0x200000: "f"}  # architecture-specific, family-specific
SIGNATURE = b"Cuda compilation tools, release "
RELEASE = re.compile(re.escape(SIGNATURE) + rb"(\d{1,3}\.\d{1,3})")
PADDING = 4096  # bytes looked at together
LONGEST_RELEASE = len(SIGNATURE) + 8
MOST_IMAGES = 4096  # distinct ones; nvcc knows some fifty architectures


class FatbinError(NotElfError):
    """A section holds no well-formed fat binaries."""


@dataclass(frozen=True)
class Image:
    """One GPU program, named as nvcc names it: `sm_90a` for machine code, `compute_90` for PTX."""

    name: str
    isa: str | None  # the PTX ISA version, "9.0"; None for machine code


@dataclass(frozen=True)
class DeviceCode:
    """The distinct images of a library in file order.

    `releases` are the CUDA releases whose tools signed the uncompressed machine code, ("13.0",).
    """

    images: tuple[Image, ...]
    releases: tuple[str, ...]


def read(stream: BinaryIO, regions: Iterable[tuple[int, int]]) -> DeviceCode:
    """The device code in some regions (offset, size) of a file."""
    images: dict[Image, None] = {}
    signed: set[str] = set()
    for start, size in regions:
        for image in _images(stream, start, start + size):
            images[image] = None
            if len(images) > MOST_IMAGES:
                raise FatbinError(f"the fat binary names more than {MOST_IMAGES:,} GPU programs")
        for _, data in _chunks(stream, start, start + size, LONGEST_RELEASE):
            if SIGNATURE in data:  # faster than the pattern by far
                signed.update(match.decode() for match in RELEASE.findall(data))
    return DeviceCode(tuple(images), tuple(sorted(signed)))


def search(stream: BinaryIO, size: int) -> DeviceCode:
    """The device code of a file that has no section table to say where it is."""
    magic = struct.pack("<I", MAGIC)
    regions: list[tuple[int, int]] = []
    end = 0
    for start, data in _chunks(stream, 0, size, len(magic)):
        at = data.find(magic)
        while at >= 0:
            if start + at >= end and (found := _container(stream, start + at, size)):
                regions.append((start + at, found))
                end = start + at + found
            at = data.find(magic, at + 1)
    return read(stream, regions)


def _container(stream: BinaryIO, at: int, limit: int) -> int | None:
    """The size of the fat binary that begins there; None where the magic is there by chance."""
    if at + CONTAINER.size > limit:
        return None
    _, version, header, size = _unpack(stream, CONTAINER, at, limit)
    fits = version == 1 and header == CONTAINER.size and at + header + size <= limit
    return header + size if fits else None


def _chunks(
    stream: BinaryIO, at: int, end: int, overlap: int = 0, size: int = CHUNK
) -> Iterator[tuple[int, bytes]]:
    """Pieces of a file with their offsets; what is shorter than the overlap is whole in one."""
    while at < end:
        stream.seek(at)
        yield at, stream.read(min(size + overlap, end - at))
        at += size


def _unpack(stream: BinaryIO, layout: struct.Struct, at: int, end: int) -> tuple[int, ...]:
    if at + layout.size > end:
        raise FatbinError(f"the fat binary is cut short: a header at byte {at:,} of {end:,}")
    stream.seek(at)
    return layout.unpack(stream.read(layout.size))


def _images(stream: BinaryIO, at: int, end: int) -> Iterator[Image]:
    while (at := _skip_padding(stream, at, end)) < end:
        magic, _, header, size = _unpack(stream, CONTAINER, at, end)
        if magic != MAGIC or header < CONTAINER.size:
            raise FatbinError(f"no fat binary is at byte {at:,} of the file: magic {magic:#x}")
        if at + header + size > end:
            raise FatbinError(f"the fat binary is cut short: it needs {size:,} bytes at {at:,}")
        yield from _entries(stream, at + header, at + header + size)
        at += header + size


def _skip_padding(stream: BinaryIO, at: int, end: int) -> int:
    """Containers are padded with zeros to eight bytes."""
    for start, data in _chunks(stream, at, end, size=PADDING):
        rest = data.lstrip(b"\0")
        if rest:
            return start + (len(data) - len(rest)) // 4 * 4
    return end


def _entries(stream: BinaryIO, at: int, end: int) -> Iterator[Image]:
    while at < end:
        entry = _unpack(stream, ENTRY, at, end)
        kind, _, header, size, _, _, minor, major, arch, _, _, flags = entry
        if header < ENTRY.size:
            raise FatbinError(f"the fat binary has a header of {header} bytes at {at:,}")
        suffix = next((letter for bit, letter in SUFFIXES.items() if flags & bit), "")
        if kind == PTX:
            yield Image(f"compute_{arch}{suffix}", f"{major}.{minor}")
        elif kind == CUBIN:
            yield Image(f"sm_{arch}{suffix}", None)
        at += header + size
