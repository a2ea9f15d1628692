"""Makes `shims.json` from the headers that torch ships.

    python -m torchproof.audit.headers TORCH_DIR...

wants the installed `torch` folder of every supported torch. A function's version is the newer of
two: the TORCH_FEATURE_VERSION it is declared under, and the first of the named torches whose
headers declare it, since many early functions carry no such guard.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from torchproof.audit.shims import TABLE
from torchproof.audit.torches import find_torch

HEADERS = (
    "torch/csrc/stable/c/shim.h",
    "torch/csrc/inductor/aoti_torch/c/shim.h",
    "torch/csrc/inductor/aoti_torch/c/shim_deprecated.h",
    "torch/csrc/inductor/aoti_torch/c/shim_cpu.h",
    "torch/csrc/inductor/aoti_torch/c/shim_mps.h",
    "torch/csrc/inductor/aoti_torch/c/shim_xpu.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_mps.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_xpu.h",
)
DEVICES = ("cuda", "mps", "xpu")  # each with a library of its own in torch
GUARD = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
DEVICE_GUARD = re.compile(r"#\s*ifdef\s+USE_(CUDA|MPS|XPU)\b")
DECLARATION = re.compile(r"AOTI_TORCH_EXPORT\s+[\w\s*]*?\b(\w+)\s*\(")


@dataclass(frozen=True)
class Declaration:
    """One function as a header declares it."""

    name: str
    guard: str | None
    device: str | None


def declarations(header: str, device: str | None = None) -> Iterator[Declaration]:
    """The exported functions of a header's text, each with the guards it stands under."""
    stack: list[tuple[str | None, str | None]] = []
    pending = ""
    for line in header.splitlines():
        text = line.split("//")[0].strip()
        if text.startswith("#"):
            _follow(stack, text)
            continue
        pending = f"{pending} {text}"
        for match in DECLARATION.finditer(pending):
            guards = [guard for guard, _ in stack if guard]
            devices = [of for _, of in stack if of]
            yield Declaration(
                match[1], max(guards, key=Version, default=None), devices[-1] if devices else device
            )
            pending = ""
        if text.endswith((";", "{", "}")):
            pending = ""


def _follow(stack: list[tuple[str | None, str | None]], directive: str) -> None:
    if directive.startswith("#if"):
        guard = GUARD.match(directive)
        device = DEVICE_GUARD.match(directive)
        stack.append(
            (f"{guard[1]}.{guard[2]}" if guard else None, device[1].lower() if device else None)
        )
    elif directive.startswith("#endif") and stack:
        stack.pop()


def read_torch(torch: Path) -> dict[str, Declaration]:
    """Every exported function that one torch's headers declare."""
    found: dict[str, Declaration] = {}
    for name in HEADERS:
        header = torch / "include" / name
        if header.exists():
            text = header.read_text(encoding="utf-8")
            of_file = [device for device in DEVICES if header.stem.endswith(f"shim_{device}")]
            rows = declarations(text, *of_file)
            found.update((row.name, row) for row in rows)
    return found


def generate(torches: list[Path]) -> dict[str, Any]:
    """The document of `shims.json` from the installed `torch` folders."""
    by_version = {found.series: read_torch(found.path) for found in map(find_torch, torches)}
    order = sorted(by_version, key=Version)
    since: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}
    devices: dict[str, list[str]] = {}
    for name in sorted(set().union(*by_version.values())):
        declared = [version for version in order if name in by_version[version]]
        last = by_version[declared[-1]][name]
        first = max([declared[0], *([last.guard] if last.guard else [])], key=Version)
        since.setdefault(first, []).append(name)
        if declared[-1] != order[-1]:
            removed.setdefault(order[order.index(declared[-1]) + 1], []).append(name)
        if last.device:
            devices.setdefault(last.device, []).append(name)
    return {
        "headers": order,
        "since": {version: since[version] for version in sorted(since, key=Version)},
        "removed": removed,
        "devices": devices,
    }


def main(arguments: list[str]) -> int:
    """Write `shims.json` from the torch folders named on the command line."""
    if not arguments:
        print(__doc__)
        return 2
    document = generate([Path(argument) for argument in arguments])
    TABLE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{TABLE.name}: headers of torch {', '.join(document['headers'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
