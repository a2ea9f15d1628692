"""What the audit reads of one ELF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchproof.audit import elf, elf_file

if TYPE_CHECKING:
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
