"""GPU programs are cleared in a library, and all else that is in it works as before."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile
from torchproof.machine import device_code

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Toolchain

# Data before and behind the programs, one of them behind a pointer, and an exception that is
# caught, for which tables behind the programs are read.
SOURCE = r"""
#include <string>
const char before[8000] = "before";
__attribute__((section(".nv_fatbin"))) extern const char programs[%d] = "GPU program";
extern "C" const char* const behind = "behind";
int changed = 7;
extern "C" int program(int at) { return programs[at]; }
extern "C" int answer(int given) {
  try {
    if (given < 0) throw std::string(before);
    return ++changed;
  } catch (const std::string& caught) {
    return caught == "before" && std::string(behind) == "behind" ? -1 : -2;
  }
}
"""


def sections(library: Path) -> dict[str, tuple[int, bytes]]:
    with library.open("rb") as file:
        return {s.name: (s["sh_addr"], s.data()) for s in ELFFile(file).iter_sections()}


@pytest.mark.parametrize("size", [100, 300_000, device_code.CHUNK + 1])
def test_the_programs_go_and_the_rest_stays(toolchain: Toolchain, size: int) -> None:
    library = toolchain.library("library.so", SOURCE % size, "-O1")
    whole, before = library.stat().st_size, sections(library)
    assert device_code.clear_fatbin(library) == size
    assert library.stat().st_size == whole
    address, _ = before[device_code.SECTION]
    assert sections(library) == before | {device_code.SECTION: (address, bytes(size))}
    loaded = ctypes.CDLL(str(library))
    assert [loaded.answer(0), loaded.answer(0), loaded.answer(-1)] == [8, 9, -1]
    assert [loaded.program(at) for at in (0, size // 2, size - 1)] == [0, 0, 0]


def test_a_library_without_programs_stays_as_it_is(toolchain: Toolchain) -> None:
    library = toolchain.library("library.so", "int answer() { return 1; }")
    whole = library.read_bytes()
    assert device_code.clear_fatbin(library) == 0
    assert library.read_bytes() == whole
