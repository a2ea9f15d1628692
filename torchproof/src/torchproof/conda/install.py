"""Install into a prefix, and take out of it, as conda does."""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import rattler
from rattler import RepoDataRecord
from rattler.shell import ActivationVariables, Shell, activate

from torchproof.conda.solving import Solution, solve
from torchproof.machine.environments import KEEP_BYTECODE

# The system's programs and no others: what comes from elsewhere must be in the prefix.
ENVIRONMENT = {"PATH": os.defpath, **KEEP_BYTECODE}


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

    @property
    def records(self) -> tuple[RepoDataRecord, ...]:
        """The packages in it."""
        return self.solution.records

    def activated(self, *command: str | Path) -> list[str]:
        """A command as it is run after `conda activate`; start it with `ENVIRONMENT`."""
        script = activate(self.prefix.resolve(), ActivationVariables(), Shell.bash).script
        return ["bash", "-c", f'{script}\nexec "$@"', "bash", *map(str, command)]


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
