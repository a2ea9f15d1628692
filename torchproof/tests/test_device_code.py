"""GPU programs are taken out of a library, and all else that is in it works as before."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from torchproof.machine import device_code

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


def link(folder: Path, size: int, *arguments: str) -> Path:
    code, library = folder / "code.cpp", folder / "library.so"
    code.write_text(SOURCE % size)
    command = ["g++", "-O1", "-shared", "-fPIC", str(code), "-o", str(library), *arguments]
    subprocess.run(command, check=True)
    return library


def sections(library: Path) -> dict[str, tuple[str, int, bytes]]:
    with library.open("rb") as file:
        return {
            s.name: (s["sh_type"], s["sh_addr"], s.data()) for s in ELFFile(file).iter_sections()
        }


@pytest.mark.parametrize("strip", [[], ["-Wl,--strip-all"]], ids=["symbols", "stripped"])
def test_the_programs_go_and_the_rest_stays(tmp_path: Path, strip: list[str]) -> None:
    library = link(tmp_path, 300_000, "-Wl,--build-id", *strip)
    size, before = library.stat().st_size, sections(library)
    taken = device_code.strip_fatbin(library)
    assert 290_000 < taken <= 300_000
    assert library.stat().st_size == size - taken
    after = sections(library)
    assert after.pop(device_code.SECTION)[0] == "SHT_NOBITS"
    assert after == {name: one for name, one in before.items() if name != device_code.SECTION}
    loaded = ctypes.CDLL(str(library))
    assert [loaded.answer(0), loaded.answer(0), loaded.answer(-1)] == [8, 9, -1]
    # Where they were, nothing is read but zeros.
    assert [loaded.program(at) for at in (5000, 100_000, 290_000)] == [0, 0, 0]


@pytest.mark.parametrize("size", [100, 5000])
def test_programs_that_fill_no_page_stay(tmp_path: Path, size: int) -> None:
    library = link(tmp_path, size, "-Wl,--build-id")
    whole = library.read_bytes()
    taken = device_code.strip_fatbin(library)
    assert taken in (0, 4096)
    assert (library.read_bytes() == whole) == (taken == 0)
    assert ctypes.CDLL(str(library)).answer(-1) == -1


def test_a_library_without_programs_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "code.c").write_text("int answer(void) { return 1; }")
    library = tmp_path / "library.so"
    subprocess.run(["gcc", "-shared", str(tmp_path / "code.c"), "-o", str(library)], check=True)
    whole = library.read_bytes()
    assert device_code.strip_fatbin(library) == 0
    assert library.read_bytes() == whole


def test_without_room_in_its_header_a_library_is_named(tmp_path: Path) -> None:
    noteless = ("-Wl,--build-id=none", "-nostartfiles", "-fcf-protection=none")
    library = link(tmp_path, 300_000, *noteless)
    with pytest.raises(ValueError, match=r"library\.so has no note"):
        device_code.strip_fatbin(library)
