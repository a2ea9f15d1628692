"""``python -m lltm [--json]``: what is installed, built against what, and whether it is sound."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from typing import Any

import torch

import lltm
from lltm import _library, _processor, backends

BY_JIT = ("jit", "jit_cuda")
"""Backends that a program has to load by itself, so that none is here yet."""
FACTS = ("lltm", "python", "torch", "cuda of torch")


def _library_facts() -> tuple[dict[str, Any] | None, str | None]:
    """The library's description, and what is wrong with it, if anything."""
    try:
        build = asdict(_library.build())
    except ImportError as error:
        return None, str(error)
    try:
        lltm._load()
        if build["cells"]:
            _library.load_cells()
        if backends.DEFAULT not in (None, *BY_JIT):
            backends.get(backends.DEFAULT, backends.ENVIRONMENT)
        torch.ops.lltm.cpu_capability()
    except (ImportError, ValueError, RuntimeError) as error:  # also of what the environment says
        return build, str(error)
    return build, None


def report() -> dict[str, Any]:
    """All that is known of this installation, as JSON-ready values."""
    library, problem = _library_facts()
    return {
        "lltm": lltm.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda of torch": torch.version.cuda,
        "processor": _processor.read().to_json(),
        "instruction_sets_in_use": {
            "lltm": None if problem else torch.ops.lltm.cpu_capability(),
            **_processor.in_use(),
        },
        "library": library,
        "backends": [
            {
                "name": backend.name,
                "available": backend.is_available(),
                "bindings": list(backend.bindings),
                "devices": list(backend.devices),
                "dtypes": [str(dtype).removeprefix("torch.") for dtype in backend.dtypes],
                "source": backend.source,
            }
            for backend in backends.BACKENDS
        ],
        "sound": problem is None,
        "problem": problem,
    }


def _print(facts: dict[str, Any]) -> None:
    rows = {name: facts[name] for name in FACTS}
    processor = _processor.from_json(facts["processor"])
    rows["processor"] = f"{processor.title} ({processor.details})"
    rows["caches"] = processor.cache_sizes
    rows["instruction sets"] = ", ".join(processor.instruction_sets)
    rows |= {f"{name} uses": value for name, value in facts["instruction_sets_in_use"].items()}
    if facts["library"] is not None:
        library = facts["library"].items()
        rows |= {f"library {name}": value for name, value in library if name != "libraries"}
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        shown = ", ".join(value) if isinstance(value, (list, tuple, dict)) else value
        print(f"{name:<{width}}  {'-' if shown in (None, '') else shown}")
    for backend in facts["backends"]:
        mark = "available" if backend["available"] else "not here "
        print(f"backend {backend['name']:<{width - 8}}  {mark}  {backend['source']}")
    print("sound" if facts["sound"] else f"NOT SOUND: {facts['problem']}")


def main(arguments: list[str] | None = None) -> int:
    """Print the report; the exit status is 0 only for a sound installation."""
    parser = argparse.ArgumentParser(prog="python -m lltm", description=__doc__)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    options = parser.parse_args(arguments)
    facts = report()
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)
    return 0 if facts["sound"] else 1


if __name__ == "__main__":
    sys.exit(main())
