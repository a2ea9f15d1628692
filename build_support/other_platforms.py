"""Check the syntax of the sources for platforms that are not at hand; nothing is built or run.

Zig's clang brings the headers of each system, so that neither its SDK nor the system is needed. On
Windows they are MinGW's, not Microsoft's: clang-cl's flags are checked on an empty source instead,
and link.exe is not checked.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

import torch

from build_support import library, variant

X86_SETS = ("baseline", "avx2", "avx512")
# What Zig defines when it compiles libc++ for a system with threads and locales.
LIBCXX = (
    "ABI_VERSION=1",
    "HARDENING_MODE_DEFAULT=_LIBCPP_HARDENING_MODE_NONE",
    "ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
    "HAS_THREADS=1",
    "HAS_THREAD_API_PTHREAD=1",
    "HAS_MONOTONIC_CLOCK=1",
    "HAS_LOCALIZATION=1",
    "HAS_WIDE_CHARACTERS=1",
    "HAS_UNICODE=1",
    "HAS_FILESYSTEM=1",
    "HAS_RANDOM_DEVICE=1",
    "HAS_TIME_ZONE_DATABASE=0",
    "HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0",
)


@dataclass(frozen=True)
class Target:
    """A platform of matrix.toml, clang's name for it, its C headers and its kernels."""

    platform: str
    triple: str
    headers: tuple[str, ...]
    sets: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What is compiled there; amx.cpp is for Linux on x86-64 alone, and empty elsewhere."""
        kernels = (f"csrc/cpu/kernels_{name}.cpp" for name in self.sets)
        common = (*library.BINDING_SOURCES["stable"], *library.COMMON_SOURCES)
        return (*common, "csrc/cpu/kernels.cpp", "csrc/cpu/bf16_dot.cpp", *kernels)


GLIBC = ("generic-glibc", "aarch64-linux-any", "any-linux-any")
TARGETS = (
    Target("macos-arm64", "arm64-apple-macos15", ("any-darwin-any",), ("baseline",)),
    Target("windows-x86_64", "x86_64-windows-gnu", ("any-windows-any",), X86_SETS),
    Target("linux-aarch64", "aarch64-linux-gnu", ("aarch64-linux-gnu", *GLIBC), ("baseline",)),
)


def zig() -> Path:
    """The program in the package ziglang."""
    (found,) = (file for file in files("ziglang") or () if file.name in ("zig", "zig.exe"))
    return Path(str(found.locate()))


def command(target: Target, source: str) -> list[str]:
    """Clang with the warnings of a build as errors, and no header of this machine but torch's."""
    program = zig()
    headers = program.parent / "lib"
    system = ["libcxx/include", "libcxxabi/include", "include"]
    system += [f"libc/include/{name}" for name in target.headers]
    torch_headers = Path(torch.__file__).parent / "include"
    return [
        *(str(program), "clang", f"--target={target.triple}", "-x", "c++", "-std=c++17"),
        *("-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-psabi", "-Werror"),
        *("-nostdinc", "-nostdinc++"),
        *(word for folder in system for word in ("-isystem", str(headers / folder))),
        *(f"-D_LIBCPP_{name}" for name in LIBCXX),
        *("-D_LIBCPP_PSTL_BACKEND_SERIAL", "-isystem", str(torch_headers)),
        f"-DTORCH_TARGET_VERSION={library.target_macro(variant.TORCH_TARGET)}",
        str(library.ROOT / source),
    ]


def flags_command(source: Path) -> list[str]:
    """Clang as clang-cl, with the flags of a build on Windows; one that it does not know fails."""
    flags = library.compile_arguments(windows=True)
    mode = ("--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "/Zs", "/TP", "/W4", "/WX")
    return [str(zig()), "clang", *mode, *flags, "--", str(source)]


def main() -> int:
    """Check clang-cl's flags, and every source for every platform; 0 when all are sound."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.cpp")
        empty.touch()
        failed = int(subprocess.run(flags_command(empty), check=False).returncode != 0)
    print(f"windows-x86_64: clang-cl's flags: {'failed' if failed else 'all are known'}")
    for target in TARGETS:
        for source in target.sources:
            code = subprocess.run(command(target, source), check=False).returncode
            failed += code != 0
            print(f"{target.platform}: {source}: {'failed' if code else 'syntax is sound'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
