"""The LLTM recurrent unit as a PyTorch extension: fused, differentiable, proven.

``lltm_cell`` and ``lltm_sequence`` are the functions, ``LLTM`` and ``LLTMSequence`` the modules,
``LLTMStream`` is inference step by step, ``lltm.cells`` makes any other cell from its formula,
``lltm.backends`` says who computes, ``python -m lltm`` what is installed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from lltm import _library, backends, cells, functional, jit, ops, reference, tutorial
from lltm._version import __version__
from lltm.functional import lltm_cell, lltm_sequence
from lltm.modules import LLTM, LLTMSequence
from lltm.stream import LLTMStream

__all__ = [
    "LLTM",
    "LLTMSequence",
    "LLTMStream",
    "__version__",
    "backends",
    "cells",
    "functional",
    "jit",
    "lltm_cell",
    "lltm_sequence",
    "reference",
    "tutorial",
]


def _module_run(arguments: Sequence[str]) -> str | None:
    """The module that an interpreter with these arguments runs: ``-m x``, ``-mx``, ``-Bm x``."""
    remaining = iter(arguments)
    for argument in remaining:
        options = argument[1:] if argument.startswith("-") and argument[1:2] != "-" else ""
        for index, option in enumerate(options, 1):
            if option in "mWX":  # the rest is its value, or the next argument
                value = argument[index + 1 :] or next(remaining, "")
                if option == "m":
                    return value
                break
    return None


def _is_being_explained() -> bool:
    """Whether this import is the first half of ``python -m lltm``, which says what is wrong."""
    return sys.argv[:1] == ["-m"] and _module_run(sys.orig_argv[1:]) == "lltm"


@functools.cache
def _load() -> None:
    """Load and register, once in a process: a second time would register every op again."""
    build = _library.load()
    ops.register("lltm", native=build.binding == "native")
    _library.register_namespace(build.binding, "lltm")
    if _library.load_cuda():
        _library.register_namespace("cuda", "lltm")
    else:
        ops.register_missing_cuda("lltm", _library.missing_cuda())


if not _is_being_explained():
    _load()
