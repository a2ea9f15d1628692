"""A second opinion on a library: what torch-abi-audit, another tool, predicts of it."""

import importlib
from functools import lru_cache
from pathlib import Path

from packaging.version import Version

from torchproof.grid.trials import FAILS, LOADS


def opinion(library: Path, torch: str) -> str:
    """Whether it loads in a torch; empty where torch-abi-audit is not installed, or says nothing.

    It says from which torch on a library loads that uses the stable ABI alone, and nothing of
    where another one does.
    """
    floor = _floor(library)
    if not floor:
        return ""
    return LOADS if Version(torch) >= Version(floor) else FAILS


@lru_cache
def _floor(library: Path) -> str:
    try:
        tool = importlib.import_module("torch_abi_audit")
    except ImportError:
        return ""
    if not library.is_file():
        return ""
    verdict = tool.inspect_extension(library).torch
    return (verdict.min_torch_version or "") if verdict.stable else ""
