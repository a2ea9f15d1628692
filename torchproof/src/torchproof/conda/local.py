"""The machine's own parts that go into the channel: compilers, C library, nvcc."""

import platform
from dataclasses import dataclass
from pathlib import Path

from torchproof.errors import TorchproofError
from torchproof.machine.inventory import Machine, Nvcc


class NoCompiler(TorchproofError):
    """Nothing can be compiled here; the message says what to install."""


@dataclass(frozen=True)
class Toolchain:
    """What compiles here."""

    cc: Path
    cxx: Path
    version: str
    glibc: str
    nvcc: Nvcc | None


def toolchain(machine: Machine, *, cuda: bool) -> Toolchain:
    """The default g++, the C library and, for `cuda` and where there is one, nvcc."""
    if machine.default is None:
        raise NoCompiler("no g++ on PATH: install one (Debian: `apt-get install g++`)")
    return Toolchain(
        cc=machine.default.c_compiler,
        cxx=machine.default.path,
        version=machine.default.version,
        glibc=platform.libc_ver()[1],
        nvcc=machine.nvcc if cuda else None,
    )
