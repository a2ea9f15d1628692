"""Which variant is built, as the environment asks for it, and the version it gets."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from build_support import cuda

ROOT = Path(__file__).absolute().parent.parent
BINDINGS = ("stable", "native")
# The first torch that the stable binding serves.
TORCH_TARGET = "2.10"
BINDING = os.environ.get("LLTM_BINDING") or "stable"
NO_TORCH = (
    f"No module named 'torch': lltm is compiled against it, and {sys.executable} has none; install "
    "torch there first, or build without --no-build-isolation"
)


def _switch(name: str) -> bool:
    """Whether a variable of the environment is 1, not 0 or empty; nothing else is understood."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise SystemExit(f"{name} must be 1 or 0, got {value!r}")
    return value == "1"


CELLS = _switch("LLTM_CELLS")
CUDA = _switch("LLTM_CUDA")
DEBUG = _switch("LLTM_DEBUG")
# Who installs the build into a package: it names variants in its own way, and may change the
# library after the build.
PACKAGER = os.environ.get("LLTM_PACKAGER") or None

if BINDING not in BINDINGS:
    raise SystemExit(f"LLTM_BINDING must be {' or '.join(BINDINGS)}, got {BINDING!r}")


def torch_series() -> str:
    """The series of the torch that is installed, which a native build is for: ``2.13``."""
    try:
        version = installed_version("torch")
    except PackageNotFoundError:
        raise SystemExit(NO_TORCH) from None
    return ".".join(version.split(".")[:2])


def dependencies(binding: str = BINDING) -> list[str]:
    """What the wheel requires: torch from the target on, or the one that a native build is for."""
    return [f"torch=={torch_series()}.*" if binding == "native" else f"torch>={TORCH_TARGET}"]


def release_version() -> str:
    """The version of the sources, which are of no variant."""
    text = (ROOT / "lltm" / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "(.+)"', text)
    if match is None:
        raise SystemExit('lltm/_version.py: expected a line __version__ = "...", found none')
    return match.group(1)


def package_version() -> str:
    """The version, marked with its torch where it serves one torch only, its CUDA, and as debug.

    A packager has marks of its own, in the package's name and build string.
    """
    version = release_version()
    if PACKAGER:
        return version
    marks = []
    if BINDING == "native":
        marks.append(f"torch{torch_series()}")
    if CUDA:
        marks.append(f"cu{cuda.release().split('.')[0]}")
    if DEBUG:
        marks.append("debug")
    return f"{version}+{'.'.join(marks)}" if marks else version
