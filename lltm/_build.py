"""What a library says of itself: ``build.json`` beside it, written when it was built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lltm._integrity import Recorded

# Without --no-deps pip reinstalls torch, too: the newest that its index has.
REINSTALL = "reinstall lltm with `pip install --force-reinstall --no-deps lltm`"


@dataclass(frozen=True)
class Build:
    """A ``build.json``.

    Attributes:
        version: lltm's version.
        binding: ``stable`` (torch's stable ABI) or ``native`` (one torch only).
        torch: version of the torch whose headers it was built on.
        torch_target: oldest torch a stable build runs on, ``None`` for a native one.
        compiler: name and version.
        cxx_standard: the C++ standard it was compiled to, such as ``c++17``.
        instruction_sets: the CPU kernels' variants, weakest first.
        cells: the cells of lltm.cells that are compiled beside the LLTM; where each one's ops are.
        cuda: CUDA version it was compiled with, or ``None``.
        cuda_architectures: such as ``sm_90``.
        driver: the oldest NVIDIA driver its CUDA kernels run on, or ``None``.
        platform: such as ``linux-x86_64``.
        debug: whether it carries debug information, and is not optimized.
        libraries: size and hash of each library; without those that a packager changes later.
    """

    version: str
    binding: str
    torch: str
    torch_target: str | None
    compiler: str
    cxx_standard: str
    instruction_sets: tuple[str, ...]
    cells: Mapping[str, str]
    cuda: str | None
    cuda_architectures: tuple[str, ...]
    driver: str | None
    platform: str
    debug: bool
    libraries: Mapping[str, Recorded]

    @staticmethod
    def read(path: Path) -> Build:
        """Read a ``build.json``.

        Raises:
            ImportError: the file is missing or not what a build writes.
        """
        try:
            return _parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ImportError(
                f"lltm was installed without its compiled library ({path} is missing); build it "
                "with `pip install .` in the source tree, and import lltm from elsewhere"
            ) from None
        except NotADirectoryError:
            archive = path.parents[2]  # above lltm/lib/build.json
            raise ImportError(
                f"lltm's library cannot be loaded from {archive}, which is no folder; unpack "
                "it, or install lltm with pip"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise ImportError(f"{path} is damaged ({error}); {REINSTALL}") from None


@dataclass(frozen=True)
class _Kind:
    """What a field must be, in words and as a check."""

    words: str
    fits: Callable[[Any], bool]

    def or_null(self) -> _Kind:
        return _Kind(f"{self.words} or null", lambda value: value is None or self.fits(value))


# Its first two numbers are what `release` of _library.py compares.
_RELEASES = re.compile(r"\d{1,9}\.\d{1,9}([.+].*)?")
_TEXT = _Kind("a string", lambda value: isinstance(value, str))
_TEXTS = _Kind(
    "a list of strings",
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
)
_RELEASE = _Kind(
    "a version such as 2.10",
    lambda value: isinstance(value, str) and _RELEASES.fullmatch(value) is not None,
)
_RECORDS = _Kind(
    "the size and sha256 of each library",
    lambda value: isinstance(value, dict) and all(map(_is_record, value.values())),
)
_KINDS = {
    "version": _TEXT,
    "binding": _Kind("stable or native", lambda value: value in ("stable", "native")),
    "torch": _RELEASE,
    "torch_target": _RELEASE.or_null(),
    "compiler": _TEXT,
    "cxx_standard": _TEXT,
    "instruction_sets": _TEXTS,
    "cells": _Kind(
        "names and namespaces",
        lambda value: (
            isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        ),
    ),
    "cuda": _TEXT.or_null(),
    "cuda_architectures": _TEXTS,
    "driver": _TEXT.or_null(),
    "platform": _TEXT,
    "debug": _Kind("true or false", lambda value: isinstance(value, bool)),
    "libraries": _RECORDS,
}


def _is_record(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"size", "sha256"}
        and isinstance(value["size"], int)
        and isinstance(value["sha256"], str)
    )


def _parse(text: str) -> Build:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"expected an object, got {type(values).__name__}")
    names = [field.name for field in fields(Build)]
    if odd := sorted(values.keys() ^ set(names)):
        problem = "has no field" if odd[0] in names else "has an unknown field"
        raise ValueError(f"it {problem} {odd[0]}")
    for name in names:
        if not _KINDS[name].fits(values[name]):
            raise ValueError(f"{name} must be {_KINDS[name].words}, got {values[name]!r}")
    values["instruction_sets"] = tuple(values["instruction_sets"])
    values["cuda_architectures"] = tuple(values["cuda_architectures"])
    values["libraries"] = {name: Recorded(**record) for name, record in values["libraries"].items()}
    return Build(**values)
