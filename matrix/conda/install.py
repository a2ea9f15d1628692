"""Install into a prefix, and take out of it, as conda does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rattler

from matrix.conda.solving import solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rattler import RepoDataRecord

    from matrix.conda.solving import Solution


@dataclass(frozen=True)
class Installed:
    """An environment."""

    prefix: Path
    solution: Solution
    seconds: float

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.prefix / "bin" / "python"


def link(records: Iterable[RepoDataRecord], prefix: Path, cache: Path) -> float:
    """Make a prefix hold exactly these packages; what else is in it is taken out. The seconds."""
    started = time.monotonic()
    asyncio.run(
        rattler.install(list(records), target_prefix=prefix, cache_dir=cache, show_progress=False)
    )
    return time.monotonic() - started


def install(channels: Sequence[Path], specs: Sequence[str], prefix: Path, cache: Path) -> Installed:
    """Solve and install.

    Raises:
        Unsolvable: there is no such environment.
    """
    solution = solve(channels, specs)
    return Installed(prefix, solution, link(solution.records, prefix, cache))
