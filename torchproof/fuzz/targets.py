"""The readers under fuzz: what each is given, and the one error that each may raise."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from samples import GOOD, I686, MATRIX, METADATA, S390X, WHEEL, archive, small_elf
from torchproof.audit import artifact, elf, elf_file, facts, unpack
from torchproof.rows import row_rules

from torchproof import config

if TYPE_CHECKING:
    from collections.abc import Callable

PINNED = b"Metadata-Version: 2.1\nName: ext\nVersion: 1.0\nRequires-Dist: torch==2.13.*\n"


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        file: the name of the file that it is given.
        seeds: sound files to begin from.
        read: takes an input and a path to write it to.
        plant: takes a check out of the reader.
    """

    file: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], None]
    plant: Callable[[], None]


def _read_elf(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with suppress(elf_file.NotElfError):
        facts.derive(elf.read(path), path.name)


def _read_wheel(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with suppress(artifact.ArtifactError), artifact.opened(path):
        pass


def _read_matrix(data: bytes, _: Path) -> None:
    with suppress(config.ConfigError):
        row_rules.violations(config.loads(data.decode("utf-8", "replace")))


def _wheels() -> list[bytes]:
    files = (("ext/ext.so", GOOD), (METADATA, PINNED))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, WHEEL)
        return [archive(path, *files, method=method).read_bytes() for method in (0, 8, 12)]


def _plant_elf() -> None:
    def unchecked(self: elf_file.ElfFile, offset: int, size: int, _: str) -> bytes:
        self.stream.seek(offset)
        return self.stream.read(size)

    elf_file.ElfFile.read = unchecked  # the bug


def _plant_wheel() -> None:
    unpack._explained = nullcontext  # the bug


def _plant_matrix() -> None:
    def unchecked(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    config.number = unchecked  # the bug


TARGETS = {
    "elf": Target(
        "ext.so", lambda: [GOOD, small_elf(I686), small_elf(S390X)], _read_elf, _plant_elf
    ),
    "wheel": Target(WHEEL, _wheels, _read_wheel, _plant_wheel),
    "matrix": Target("matrix.toml", lambda: [MATRIX], _read_matrix, _plant_matrix),
}
