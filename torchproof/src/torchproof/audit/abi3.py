"""abi3audit's verdict on one library."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Abi3:
    """What a library that claims abi3 uses beyond it."""

    baseline: str
    computed: str
    foreign: tuple[str, ...]  # names outside the limited API

    @property
    def sound(self) -> bool:
        """Whether the claim holds."""
        return not self.foreign and _number(self.computed) <= _number(self.baseline)


def check(path: Path, baseline: str) -> Abi3:
    """Run abi3audit on a library that claims the limited API of CPython `baseline`.

    Raises:
        RuntimeError: abi3audit gave no verdict.
    """
    command = [sys.executable, "-m", "abi3audit", "--report", "--assume-minimum-abi3", baseline]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    try:
        (spec,) = json.loads(done.stdout)["specs"].values()
        result = spec["object"]["result"] if "object" in spec else spec["result"]
    except (ValueError, KeyError) as error:
        raise RuntimeError(
            f"abi3audit gave no verdict on {path.name}: {done.stderr.strip()}"
        ) from error
    return Abi3(baseline, result["computed"], tuple(sorted(result["non_abi3_symbols"])))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
