"""What the audit reads of one ELF file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from torchproof.audit import elf, elf_file

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Toolchain

MANY = 100_000  # 24 bytes each: more than is read at a time
RELOCATED = f"""
asm(".data\\n.rept {MANY}\\n.quad first\\n.endr\\n.quad second\\n.quad first");
"""


def test_a_long_table_of_relocations_is_read_to_its_end(toolchain: Toolchain) -> None:
    path = toolchain.library("ext.so", RELOCATED, "-nostdlib", "-Wl,-z,nocombreloc")
    assert MANY * 24 > 2 * elf_file.CHUNK
    with path.open("rb") as stream:
        file = elf_file.ElfFile(stream)
        found = [file.symbols[at].name for at in file.relocated()]
    assert found == ["first"] * MANY + ["second", "first"]
    assert [symbol.name for symbol in elf.read(path).undefined] == ["first", "second"]


def with_tag(library: Path, tag: int, value: int) -> Path:
    """The library with DT_FLAGS replaced, and no DT_FLAGS_1."""
    with library.open("rb") as stream:
        file = elf_file.ElfFile(stream)
        (segment,) = (each for each in file.segments if each.kind == elf_file.PT_DYNAMIC)
    debug = (21, 0)  # which means nothing in a library
    new = {elf_file.DT_FLAGS: (tag, value), elf_file.DT_FLAGS_1: debug}
    data = bytearray(library.read_bytes())
    for at in range(segment.offset, segment.offset + segment.size, 16):
        old, _ = struct.unpack_from("<QQ", data, at)
        if old in new:
            struct.pack_into("<QQ", data, at, *new[old])
    path = library.with_name(f"with-{tag:x}-{value:x}.so")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("tag", "value", "found"),
    [
        (elf_file.DT_BIND_NOW, 0, "bound now"),
        (elf_file.DT_FLAGS, 0x8, "bound now"),
        (elf_file.DT_FLAGS_1, 0x1, "bound now"),
        (elf_file.DT_TEXTREL, 0, "text relocations"),
        (elf_file.DT_FLAGS, 0x4, "text relocations"),
        (elf_file.DT_FLAGS, 0x2, "neither"),
        (elf_file.DT_FLAGS_1, 0x8, "neither"),
    ],
)
def test_either_spelling_of_a_flag_counts(
    tag: int, value: int, found: str, toolchain: Toolchain
) -> None:
    library = toolchain.library("ext.so", "int nothing;\n", "-Wl,-z,now,-z,relro")
    file = elf.read(with_tag(library, tag, value))
    assert file.bind_now == (found == "bound now")
    assert file.text_relocations == (found == "text relocations")
    assert file.relro
