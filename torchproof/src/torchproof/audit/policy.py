"""What a binary is held to: what its row declares, and the known bounds of torch, nvcc and C++."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from torchproof import config

CPU = "cpu"
CXX20 = 20

Binding = Literal["stable", "native", "none"]


@dataclass(frozen=True)
class Ceilings:
    """The newest symbol versions a binary may need, such as glibc "2.28"; None is no ceiling."""

    glibc: str | None = None
    glibcxx: str | None = None
    cxxabi: str | None = None


def newest(versions: Iterable[str], name: str) -> str | None:
    """The newest of the versions of one name: of GLIBC_2.4 and GLIBC_2.17 it is "2.17"."""
    matches = (re.fullmatch(rf"{name}_(\d{{1,9}}(?:\.\d{{1,9}})*)", text) for text in versions)
    return max((match[1] for match in matches if match), key=Version, default=None)


@dataclass(frozen=True)
class Policy:
    """What one row of the matrix declares about its binary; a check of what is None is not run.

    Attributes:
        binding: "stable" or "native".
        target: the lowest torch a stable binary must load on, "2.10".
        torch: the torch whose headers it was compiled against, "2.13"; it decides the compiler
            floor, and a native binary is safe in this one only.
        python: "none", "abi3" or "cpython-311".
        cuda: the toolkit release, "13.0", or "cpu".
        cuda_architectures: in torch's spelling ("9.0", "9.0a", "9.0+PTX") or nvcc's ("sm_90").
        ceilings: the oldest system it must load on.
        platform: the wheel tag it must satisfy, "manylinux_2_28_x86_64"; a wheel's own when None.
        cxx11_abi: `_GLIBCXX_USE_CXX11_ABI` of the torch it is for; that of `torch` or `target`
            when None.
        debug: a debug build, which keeps what a debugger needs.
        needed: libraries it may link besides the allow-list, as shell patterns.
        exports: symbols it may export besides the allow-list, as shell patterns.
    """

    binding: Binding | None = None
    target: str | None = None
    torch: str | None = None
    python: str | None = None
    cuda: str | None = None
    cuda_architectures: tuple[str, ...] | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    platform: str | None = None
    cxx11_abi: bool | None = None
    debug: bool = False
    needed: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def known() -> config.Known:
    """The facts, as the project in the working directory adds to them; without one, as they are."""
    return config.load() if config.PATH.is_file() else config.known()


def floor(torch: str, family: str) -> tuple[int, str]:
    """The C++ standard of a torch series' headers, and the first gcc or clang that is fit for it.

    A series that is not listed counts as its neighbour below.
    """
    releases = known().torch
    below = [r for r in releases if Version(r.series) <= Version(torch)] or releases[:1]
    cxx = below[-1].cxx
    if cxx < CXX20:
        floors = config.audit().cxx17
        return cxx, floors.gcc if family == "gcc" else floors.clang
    program = {"gcc": "g++", "clang": "clang++"}[family]
    return cxx, next(str(row.cxx20) for row in known().compilers if row.name == program)


def oldest_systems(glibc: str | None) -> tuple[str, ...]:
    """The oldest release of each distribution whose C library is new enough."""
    if glibc is None:
        return ()
    fit = {
        name: [release for release, has in releases.items() if Version(has) >= Version(glibc)]
        for name, releases in config.audit().distributions.items()
    }
    return tuple(f"{name} {min(found, key=Version)}" for name, found in fit.items() if found)


def default_policy() -> Policy:
    """What any torch extension is held to when no row declares more: the project's `[audit]`."""
    audit = config.audit()
    ceilings = Ceilings(**asdict(audit.ceilings))
    return Policy(ceilings=ceilings, needed=audit.needed, exports=audit.exports)
