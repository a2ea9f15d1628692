"""What `mutants` changes: a seed's mutants, by part of the sources, and what its table says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mutations
from record import ROOT
from torchproof.config import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mutations import Mutant

TABLE = Path(__file__).with_name("survivors.toml")
# What the library is built from, and what an outcome in a suite depends on.
BUILT = ("csrc", "lltm", "build_support")
SOURCES = {
    "op": (*BUILT, "tests/op", "tests/packages/test_cells_package.py"),
    "audit": ("torchproof/src", "torchproof/tests"),
}
# What is made of sources, beside them.
MADE = ("__pycache__", "lib", "*.egg-info")


@dataclass(frozen=True)
class Part:
    """What is mutated, and how often."""

    sources: tuple[str, ...]
    count: int


PARTS = {
    "functor": Part(("csrc/lltm_cell.inc",), 10),
    "csrc/cpu": Part(("csrc/cpu/*",), 40),
    "csrc/host": Part(("csrc/host/*",), 40),
    "lltm": Part(("lltm/*.py", "lltm/cells/*.py"), 40),
    "audit": Part(("torchproof/src/torchproof/audit/**/*.py",), 40),
}


def table() -> dict[str, Any]:
    """Survivors with their reasons, and places that are not mutated with theirs."""
    return read_toml(TABLE)


def explained() -> dict[str, str]:
    """Survivors with their reasons."""
    return {row["mutant"]: row["why"] for row in table().get("survivor", ())}


def is_left_out(mutant: Mutant) -> bool:
    """Whether the table says that a place is not mutated."""
    return any(
        fnmatch(mutant.file, row["file"]) and fnmatch(mutant.function, row.get("function", "*"))
        for row in table()["left_out"]
    )


def choose(seed: int, parts: Iterable[Part], function: str = "") -> dict[int, Mutant]:
    """The mutants of a seed, numbered; of all functions, or of one."""
    chosen: list[Mutant] = []
    for part in parts:
        found = [mutant for mutant in mutants_of(part) if function in ("", mutant.function)]
        chosen += mutations.choose(found, part.count, seed)
    return dict(enumerate(chosen))


def mutants_of(part: Part) -> Iterator[Mutant]:
    """Every one there is, but where the table says that nothing is mutated."""
    for pattern in part.sources:
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix in (".h", ".cpp", ".inc", ".py"):
                found = mutations.find(path, path.relative_to(ROOT).as_posix())
                yield from (mutant for mutant in found if not is_left_out(mutant))


def digest(suite: str) -> str:
    """Of all that an outcome in a suite depends on."""
    return digest_of(SOURCES[suite])


def digest_of(folders: Iterable[str]) -> str:
    """Of the sources below some folders."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    hashed = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(ROOT)
        if not any(fnmatch(part, made) for part in name.parts for made in MADE):
            hashed.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()
