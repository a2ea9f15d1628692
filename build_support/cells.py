"""The library with the cells of lltm.cells that a wheel carries compiled, beside the LLTM."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).absolute().parent.parent
SOURCES = ROOT / "csrc"
# With these the library stays under 2 MiB: what they share takes 0.4 MB, the rest 0.3 to 0.6 MB
# each. The others are compiled at first use.
CARRIED = ("lstm", "gru", "slstm")
BINDING = "stable/any_binding.cpp"
# What is compiled for size by GCC, but for the headers named: what runs once a call, and kernels
# for x86-64 without AVX2, which are 0 to 18 % slower so. It is 0.1 MB of the 2 MiB.
FOR_SIZE = {"cpu/kernels_baseline.cpp": (), BINDING: ("host/cpu_device.h",)}
PRAGMA = (
    "#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)",
    '#pragma GCC optimize ("Os")',
    "#endif",
)


def _sorted_lines(found: re.Match[str]) -> str:
    return "".join(sorted(found.group().splitlines(keepends=True)))


@dataclass(frozen=True)
class Cell:
    """A functor in csrc, as ``python -m lltm.cells functor`` prints it.

    Attributes:
        header: its file, relative to csrc.
    """

    header: str

    @property
    def text(self) -> str:
        """What the file says."""
        return (SOURCES / self.header).read_text(encoding="utf-8")

    @property
    def struct(self) -> str:
        """The functor's name in C++."""
        found = re.search(r"^struct (\w+) \{$", self.text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"csrc/{self.header}: expected a line `struct NAME {{`, found none")
        return found.group(1)

    @property
    def namespace(self) -> str:
        """Where lltm.cells looks for the ops: as lltm.cells._functor.Functor has it."""
        text = re.sub(r"(?m)(?:^    const .*\n)+", _sorted_lines, self.text)
        return f"lltm_cell_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


LLTM = Cell("lltm_cell.inc")


def carried() -> dict[str, Cell]:
    """The cells of the library, by name."""
    return {name: Cell(f"cells/{name}.inc") for name in CARRIED}


def write_sources(folder: Path, kernels: list[str]) -> list[str]:
    """One file for each cell and source, since a cell is chosen by macros.

    Args:
        folder: where they go.
        kernels: the sources of the CPU kernels that depend on the cell, relative to csrc.

    Returns:
        The files; those that take longest to compile come first.
    """
    written = []
    for source in (*kernels, BINDING):
        for name, cell in carried().items():
            path = folder / name / Path(source).name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = (
                "#define LLTM_SEVERAL_CELLS",
                "#define LLTM_ONLY_SEQUENCES",
                f"#define LLTM_NAMESPACE {cell.namespace}",
                f"#define LLTM_CELL {cell.struct}",
                f'#define LLTM_CELL_HEADER "{cell.header}"',
                *(f'#include "{SOURCES / header}"' for header in FOR_SIZE.get(source, ())),
                *(PRAGMA if source in FOR_SIZE else ()),
                f'#include "{SOURCES / source}"',
            )
            text = "\n".join(lines) + "\n"
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
            written.append(str(path))
    return written
