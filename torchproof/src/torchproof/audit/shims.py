"""Torch's stable C API: since which torch each function exists, and which library provides it.

The table is `shims.json`, which torchproof/audit/headers.py makes from the headers of torch.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).with_name("shims.json")


@dataclass(frozen=True)
class Shim:
    """One function; it is in torch from `since` up to, not including, `removed`."""

    since: str
    removed: str | None
    device: str | None  # "cuda": libtorch_cuda.so provides it


@lru_cache(maxsize=1)
def table() -> dict[str, Shim]:
    """The committed table, by function name."""
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    removed = {name: torch for torch, names in document["removed"].items() for name in names}
    device = {name: device for device, names in document["devices"].items() for name in names}
    return {
        name: Shim(torch, removed.get(name), device.get(name))
        for torch, names in document["since"].items()
        for name in names
    }


@lru_cache(maxsize=1)
def newest_torch() -> str:
    """The newest torch whose headers the table is made from."""
    return str(json.loads(TABLE.read_text(encoding="utf-8"))["headers"][-1])
