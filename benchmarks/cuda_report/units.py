"""What nvcc compiles: csrc/cuda, with the functor of each cell that ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchproof.config import ROOT

from lltm.cells import formulas
from lltm.cells._functor import functor
from lltm.cells._kernels import functor_flags

SOURCES = tuple(sorted((ROOT / "csrc" / "cuda").glob("*.cu")))
WITH_FUNCTOR = ("gates.cu", "persistent.cu", "resets.cu")
"""The others' kernels are the same for every cell, and compiled for the library's own."""


@dataclass(frozen=True)
class Unit:
    """A source and the functor that it is compiled with.

    Attributes:
        source: in csrc/cuda.
        cell: the functor's name in C++.
        flags: what names the functor to nvcc.
    """

    source: Path
    cell: str
    flags: tuple[str, ...] = ()


def units(folder: Path) -> list[Unit]:
    """Everything to compile; the functors, which :mod:`lltm.cells` generates, go to the folder."""
    found = []
    for cell in formulas.SHIPPED:
        made = functor(cell)
        header = folder / f"{made.struct}.inc"
        header.write_text(made.text, encoding="utf-8")
        flags = tuple(functor_flags(made, header))
        found += [
            Unit(source, made.struct, flags)
            for source in SOURCES
            if source.name in WITH_FUNCTOR or cell is formulas.LLTM
        ]
    return found
