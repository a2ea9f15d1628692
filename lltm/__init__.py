"""The LLTM recurrent unit as a PyTorch extension: fused, differentiable, proven.

``lltm_cell`` and ``lltm_sequence`` are the functions, ``LLTM`` and ``LLTMSequence`` the modules,
``LLTMStream`` is inference step by step, ``lltm.cells`` makes any other cell from its formula,
``lltm.backends`` says who computes, ``python -m lltm`` what is installed.
"""

from __future__ import annotations

import functools
import sys

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


def _is_being_explained() -> bool:
    """Whether this import is the first half of ``python -m lltm``, which says what is wrong."""
    arguments = sys.orig_argv
    return sys.argv[:1] == ["-m"] and "lltm" in arguments[arguments.index("-m") + 1 :][:1]


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
