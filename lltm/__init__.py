"""The LLTM recurrent unit as a PyTorch extension: fused, differentiable, proven.

``lltm_cell`` and ``lltm_sequence`` are the functions, ``LLTM`` and ``LLTMSequence`` the modules,
``lltm.backends`` says who computes, ``python -m lltm`` what is installed.
"""

from __future__ import annotations

import sys

from lltm import _library, backends, functional, reference
from lltm._version import __version__
from lltm.functional import lltm_cell, lltm_sequence
from lltm.modules import LLTM, LLTMSequence

__all__ = [
    "LLTM",
    "LLTMSequence",
    "__version__",
    "backends",
    "functional",
    "lltm_cell",
    "lltm_sequence",
    "reference",
]


def _is_being_explained() -> bool:
    """Whether this import is the first half of ``python -m lltm``, which explains what is wrong."""
    return sys.argv[:1] == ["-m"] and sys.orig_argv[-1:] != [] and "lltm" in sys.orig_argv


def _load() -> None:
    from lltm import ops  # noqa: PLC0415 - its tables are wanted only with a library

    build = _library.load()
    ops.register("lltm", native=build.binding == "native")


if not _is_being_explained():
    _load()
