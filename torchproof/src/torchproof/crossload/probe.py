"""Run by the interpreter of an environment: load the extension, compute something, say what came.

``probe.py package NAME SMOKE`` imports NAME as a user does, then calls by_import() of the file
SMOKE; ``probe.py loader LIBRARY SMOKE`` hands the library to torch without asking the package, then
calls by_loader(). The last line on standard output is JSON: outcome and said.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from collections.abc import Callable

import torch


def outcome(compute: Callable[[], object]) -> tuple[str, str]:
    """What came of a function that raises where the extension is wrong."""
    try:
        compute()
    except Exception as error:  # whatever a wrong binary raises is the finding
        return "loads but wrong", f"{type(error).__name__}: {error}"
    return "loads", "right"


def through_package(name: str, smoke: str) -> tuple[str, str]:
    """As a user does. An objection of more than one sentence's line is no clear refusal."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        text = str(error)
        return ("refuses", text) if "\n" not in text else ("loads but wrong", text)
    return outcome(runpy.run_path(smoke)["by_import"])


def through_loader(library: str, smoke: str) -> tuple[str, str]:
    """As if nobody judged the library first."""
    try:
        torch.ops.load_library(library)
    except OSError as error:
        return "refuses", str(error)
    return outcome(runpy.run_path(smoke)["by_loader"])


if __name__ == "__main__":
    way, what, smoke = sys.argv[1:]
    came, said = (through_package if way == "package" else through_loader)(what, smoke)
    print(json.dumps({"outcome": came, "said": said}))
