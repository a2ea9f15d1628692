"""Small sound files for tests and fuzzing to damage."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WHEEL = "ext-1.0-py3-none-linux_x86_64.whl"
WIDE = 64
METADATA = "ext-1.0.dist-info/METADATA"


@dataclass(frozen=True)
class Kind:
    """An ELF class, byte order and machine."""

    machine: int
    width: int = 64
    order: str = "<"


I686, S390X = Kind(3, 32), Kind(22, 64, ">")


def small_elf(kind: Kind, needed: str = "libc.so.6", undefined: str = "PyErr_Clear") -> bytes:
    """The smallest shared library: one NEEDED entry, one undefined symbol, no section table."""
    wide = kind.width == WIDE
    word = "Q" if wide else "I"
    header, segment, symbol = (
        ("HHIQQQIHHHHHH", "IIQQQQQQ", "IBBHQQ") if wide else ("HHIIIIIHHHHHH", "IIIIIIII", "IIIBBH")
    )

    def pack(layout: str, *values: int) -> bytes:
        return struct.pack(kind.order + layout, *values)

    head, row, entry = (struct.calcsize("<" + text) for text in (header, segment, symbol))
    strings = b"\0" + needed.encode() + b"\0" + undefined.encode() + b"\0"
    at_name = 2 + len(needed)
    table = 16 + head + 2 * row
    symbols = bytes(entry) + (
        pack(symbol, at_name, 0x10, 0, 0, 0, 0) if wide else pack(symbol, at_name, 0, 0, 0x10, 0, 0)
    )
    hashes = table + len(symbols)
    names = hashes + 20
    dynamic = names + len(strings)
    values = {1: 1, 5: names, 6: table, 4: hashes, 10: len(strings), 11: entry, 0: 0}
    tags = b"".join(pack(word * 2, tag, value) for tag, value in values.items())
    end = dynamic + len(tags)
    segments = b"".join(
        pack(segment, kind_of, 4, at, at, at, size, size, 1)
        if wide
        else pack(segment, kind_of, at, at, at, size, size, 4, 1)
        for kind_of, at, size in ((1, 0, end), (2, dynamic, len(tags)))
    )
    ident = b"\x7fELF" + bytes([kind.width // 32, 1 if kind.order == "<" else 2, 1]) + bytes(9)
    return b"".join((
        ident,
        pack(header, 3, kind.machine, 1, 0, 16 + head, 0, 0, 16 + head, row, 2, 0, 0, 0),
        segments,
        symbols,
        pack("5I", 1, 2, 1, 0, 0),
        strings,
        tags,
    ))  # fmt: skip


GOOD = small_elf(Kind(62))


def archive(path: Path, *files: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    """A zip of some files."""
    with zipfile.ZipFile(path, "w", method) as target:
        for name, data in files:
            target.writestr(name, data)
    return path


MATRIX = b"""
stable = { target = "2.10", headers = "2.13" }
torch = [ { version = "2.13.0", pythons = ["3.11"], cxx = 20, cuda = "13.0" } ]
compilers = [ { name = "g++", oldest = 11, newest = 15, cxx20 = 11 } ]
cuda = []
platforms = []
suites = [ { name = "full", paths = ["tests"], arguments = [], minutes = 1 } ]
tiers = [ { name = "local", includes = [], spans_torch = false } ]
rows = [
  { tier = "local", torch = "headers", python = "3.11", binding = ["stable", "native"], \
compiler = "each", suite = "full" },
]
"""
