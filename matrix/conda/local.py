"""The machine's own parts that go into the channel: compilers, C library, nvcc."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.config import series

if TYPE_CHECKING:
    from matrix.machine import Machine


class NoCompiler(Exception):  # noqa: N818  # read by the user as the reason the session stops
    """Nothing can be compiled here; the message says what to install."""


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler: its release, "13.0", full version and the toolkit it belongs to."""

    release: str
    version: str
    root: Path


@dataclass(frozen=True)
class Toolchain:
    """What compiles here."""

    cc: Path
    cxx: Path
    version: str
    glibc: str
    nvcc: Nvcc | None


def toolchain(machine: Machine) -> Toolchain:
    """The default g++, the C library and, where there is one, nvcc.

    Raises:
        NoCompiler: no g++ on PATH.
    """
    if machine.default is None:
        raise NoCompiler("no g++ on PATH: install one (Debian: `apt-get install g++`)")
    return Toolchain(
        cc=machine.default.c_compiler,
        cxx=machine.default.path,
        version=machine.default.version,
        glibc=platform.libc_ver()[1],
        nvcc=find_nvcc(),
    )


def find_nvcc() -> Nvcc | None:
    """The nvcc of CUDA_HOME or PATH, asked where its toolkit lies: PATH may hold a wrapper."""
    home = os.environ.get("CUDA_HOME")
    program = shutil.which("nvcc", path=f"{home}/bin" if home else None)
    if program is None:
        return None
    told = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    plan = subprocess.run(
        [program, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    version = re.search(r"V(\d+\.\d+\.\d+)", told.stdout)
    top = re.search(r"^#\$ TOP=(.+)$", plan.stderr, re.MULTILINE)
    if version is None or top is None:
        return None
    return Nvcc(series(version[1]), version[1], Path(top[1]).resolve())
