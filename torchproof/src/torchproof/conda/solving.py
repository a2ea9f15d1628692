"""Solve for an environment as `conda install` would, with rattler."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rattler
from rattler import RepoDataRecord
from rattler.exceptions import SolverError
from rattler.virtual_package import VirtualPackage, VirtualPackageOverrides

from torchproof.errors import TorchproofError
from torchproof.files import text_hash


class Unsolvable(TorchproofError):
    """There is no such environment; the message names the constraint in the way."""


@dataclass(frozen=True)
class Solution:
    """The packages of an environment."""

    records: tuple[RepoDataRecord, ...]
    seconds: float

    @property
    def key(self) -> str:
        """One hash over the packages."""
        return text_hash(*sorted(f"{r.file_name} {(r.sha256 or b'').hex()}" for r in self.records))

    def record(self, name: str) -> RepoDataRecord:
        """The package called `name`; KeyError when it is not among them."""
        for record in self.records:
            if record.name.normalized == name:
                return record
        raise KeyError(name)

    def build(self, name: str) -> str:
        """The build string of the package called `name`."""
        return str(self.record(name).build)

    def version(self, name: str) -> str:
        """The version of the package called `name`."""
        return str(self.record(name).version)


def detect() -> list[VirtualPackage]:
    """What this machine has, as conda sees it: its C library, its processor, its CUDA driver."""
    return VirtualPackage.detect(VirtualPackageOverrides.from_env())


def solve(channels: Sequence[Path], specs: Sequence[str]) -> Solution:
    """Solve on what this machine has; `CONDA_OVERRIDE_CUDA` is honoured as conda does.

    Args:
        channels: folders of channels, those first in line preferred.
        specs: what is asked for, in conda's match specifications.
    """
    started = time.monotonic()
    try:
        records = asyncio.run(
            rattler.solve(
                [channel.resolve().as_uri() for channel in channels],
                list(specs),
                platforms=["linux-64", "noarch"],
                virtual_packages=detect(),
            )
        )
    except SolverError as error:
        raise Unsolvable(str(error)) from None
    return Solution(tuple(records), time.monotonic() - started)
