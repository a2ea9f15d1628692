"""What `nox -s conda` has built and installed; the tests here are run by it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Context:
    """The run's channels, packages and environments."""

    channels: tuple[Path, ...]
    parts: Path
    cache: Path
    variants: Path
    packages: tuple[dict[str, str], ...]
    environments: tuple[dict[str, Any], ...]


@pytest.fixture(scope="session")
def context() -> Context:
    named = os.environ.get("TORCHPROOF_CONDA_CONTEXT")
    if named is None:
        pytest.skip("not run: `nox -s conda` builds the packages and runs these tests itself")
    description = json.loads(Path(named).read_text(encoding="utf-8"))
    return Context(
        channels=tuple(Path(folder) for folder in description["channels"]),
        parts=Path(description["parts"]),
        cache=Path(description["cache"]),
        variants=Path(description["variants"]),
        packages=tuple(description["packages"]),
        environments=tuple(description["environments"]),
    )
