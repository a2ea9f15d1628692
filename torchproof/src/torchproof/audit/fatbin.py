"""The GPU images inside a library: which architectures, binary or PTX, made by which CUDA release.

Read from the fat binary itself, because few CUDA installations have `cuobjdump`. The layout, as
`fatbinary` of CUDA 11 to 13 writes it (little-endian):

    container  u32 magic 0xBA55ED50 | u16 version | u16 header bytes | u64 bytes of entries
    entry      u16 kind (1 PTX, 2 cubin) | u16 version | u32 header bytes | u64 payload bytes
               | u32 compressed bytes | u32 options at | u16 minor | u16 major | u32 arch
               | u32 name at | u32 name bytes | u64 flags
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQ")
PTX, CUBIN = 1, 2
SUFFIXES = {0x100000: "a", 0x200000: "f"}  # architecture-specific, family-specific
RELEASE = re.compile(rb"Cuda compilation tools, release (\d+\.\d+)")


class FatbinError(ValueError):
    """The section holds no well-formed fat binaries."""


@dataclass(frozen=True)
class Image:
    """One GPU program, named as nvcc names it: `sm_90a` for machine code, `compute_90` for PTX."""

    name: str
    isa: str | None  # the PTX ISA version, "9.0"; None for machine code


def images(data: bytes) -> tuple[Image, ...]:
    """The distinct images of a `.nv_fatbin` section, in file order.

    Raises:
        FatbinError: bytes that are neither a fat binary nor padding.
    """
    try:
        return tuple(dict.fromkeys(_images(data)))
    except struct.error as error:
        raise FatbinError(f"the fat binary section is cut short: {error}") from error


def releases(data: bytes) -> tuple[str, ...]:
    """The CUDA releases whose tools signed the uncompressed machine code, such as ("13.0",)."""
    return tuple(sorted({match.decode() for match in RELEASE.findall(data)}))


def _images(data: bytes) -> Iterator[Image]:
    at = 0
    while at < len(data):
        if data.startswith(b"\0\0\0\0", at):  # containers are padded to eight bytes
            at += 4
            continue
        magic, _, header, size = CONTAINER.unpack_from(data, at)
        if magic != MAGIC:
            raise FatbinError(f"no fat binary at byte {at} of the section: magic {magic:#x}")
        yield from _entries(data, at + header, at + header + size)
        at += header + size


def _entries(data: bytes, at: int, end: int) -> Iterator[Image]:
    while at < end:
        kind, _, header, size, _, _, minor, major, arch, _, _, flags = ENTRY.unpack_from(data, at)
        suffix = next((letter for bit, letter in SUFFIXES.items() if flags & bit), "")
        if kind == PTX:
            yield Image(f"compute_{arch}{suffix}", f"{major}.{minor}")
        elif kind == CUBIN:
            yield Image(f"sm_{arch}{suffix}", None)
        at += header + size
