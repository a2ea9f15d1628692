"""The library of CUDA kernels, made by plain nvcc.

It needs nvcc and no GPU, and no CUDA build of torch either: the kernels know no torch, the bindings
use only headers that every build of torch has, and what they take from libtorch_cuda is linked
against a stub.

Environment:
    CUDA_HOME: the toolkit, else the one whose nvcc is on PATH.
    TORCH_CUDA_ARCH_LIST: architectures as torch spells them, ``9.0;12.0+PTX``; those of matrix.toml
        unless named.
    CXX: nvcc's host compiler, too.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).absolute().parent.parent
SOURCES = [str(path) for path in sorted((ROOT / "csrc" / "cuda").glob("*.cu"))]
# What the bindings take from libtorch_cuda.
TORCH_CUDA_FUNCTIONS = ("aoti_torch_get_current_cuda_stream", "aoti_torch_cuda_mm_out")
ARCHITECTURE = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")


@functools.cache
def nvcc() -> Path:
    """The CUDA compiler.

    Raises:
        SystemExit: there is none.
    """
    named = os.environ.get("CUDA_HOME")
    found = Path(named, "bin", "nvcc") if named else Path(shutil.which("nvcc") or "nvcc")
    if not found.is_file():
        raise SystemExit(
            f"LLTM_CUDA=1 needs nvcc, and there is no {found}; put it on PATH, name the toolkit in "
            "CUDA_HOME, or leave LLTM_CUDA out to build for the CPU"
        )
    return found


def _nvcc_output(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What nvcc prints.

    Raises:
        SystemExit: it does not run, as a wrapper whose toolkit is gone.
    """
    command = [str(nvcc()), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip() or f"exit status {error.returncode}"
    except OSError as error:
        reason = error.strerror
    raise SystemExit(
        f"LLTM_CUDA=1 needs nvcc, and {shlex.join(command)} fails ({reason}); name another toolkit "
        "in CUDA_HOME, or leave LLTM_CUDA out to build for the CPU"
    )


@functools.cache
def home() -> Path:
    """The folder of the toolkit, asked of nvcc: the one on PATH may be a link or a script."""
    steps = _nvcc_output("--dryrun", "-x", "cu", os.devnull, "-c", "-o", os.devnull).stderr
    match = re.search(r"^#\$ TOP=(.+)$", steps, re.MULTILINE)
    if match is None:
        raise SystemExit(f"{nvcc()} --dryrun names no TOP folder; name the toolkit in CUDA_HOME")
    return Path(match.group(1)).resolve()


@functools.cache
def release() -> str:
    """The toolkit's release, such as ``13.0``."""
    banner = _nvcc_output("--version").stdout
    match = re.search(r"release (\d+\.\d+)", banner)
    if match is None:
        raise SystemExit(f"{nvcc()} --version names no release: {banner!r}")
    return match.group(1)


@functools.cache
def images() -> tuple[str, ...]:
    """The GPU programs to build: ``sm_90`` is machine code, ``compute_120`` is PTX.

    Raises:
        SystemExit: no list is named and matrix.toml has none for this toolkit, or one is misspelt.
    """
    if named := os.environ.get("TORCH_CUDA_ARCH_LIST"):
        entries = re.split(r"[;,\s]+", named.strip())
    else:
        entries = _known_architectures()
    names = []
    for entry in entries:
        match = ARCHITECTURE.fullmatch(entry)
        if match is None:
            raise SystemExit(
                f"TORCH_CUDA_ARCH_LIST: {entry!r} is no architecture; write 9.0 or 12.0+PTX"
            )
        number = "".join(match.group(1, 2, 3))
        names += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return tuple(names)


def _known() -> list[dict[str, Any]]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - only a CUDA build needs it
    else:
        import tomli as tomllib  # noqa: PLC0415 - CPython 3.10 only
    return list(tomllib.loads((ROOT / "matrix.toml").read_text(encoding="utf-8"))["cuda"])


def _known_architectures() -> list[str]:
    for row in _known():
        if row["version"] == release():
            return list(row["architectures"])
    known = ", ".join(row["version"] for row in _known())
    raise SystemExit(
        f"matrix.toml has architectures for CUDA {known}, nvcc is of {release()}; name yours in "
        "TORCH_CUDA_ARCH_LIST"
    )


def driver() -> str | None:
    """The oldest driver that runs what this toolkit builds; None for one not in matrix.toml."""
    return next((row["driver"] for row in _known() if row["version"] == release()), None)


def nvcc_command(*arguments: str) -> list[str]:
    """Nvcc, its host compiler, the architectures, the flags that every source is compiled with."""
    host = ["-ccbin", os.environ["CXX"]] if os.environ.get("CXX") else []
    codes = [f"-gencode=arch=compute_{name.split('_')[1]},code={name}" for name in images()]
    listed = ", ".join(images())
    return [
        str(nvcc()),
        *host,
        *codes,
        "-std=c++17",
        "-O3",
        f'-DLLTM_CUDA_ARCHITECTURES="{listed}"',
        *arguments,
    ]


def compile_kernels(build: Path, host_flags: Sequence[str], threads: int) -> list[str]:
    """Compile the .cu files; returns the object files."""
    objects = []
    host = [f"-Xcompiler={flag}" for flag in ("-fPIC", "-fvisibility=hidden", *host_flags)]
    build.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        target = build / f"{Path(source).name}.o"
        command = nvcc_command(
            f"--threads={threads}", *host, "-c", os.path.relpath(source, ROOT), "-o", str(target)
        )
        print(" ".join(command), flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"nvcc could not compile {source}; its message is above")
        objects.append(str(target))
    return objects


def link_stub(build: Path, compiler: Sequence[str]) -> str:
    """A libtorch_cuda.so to link against, for torch's CPU wheel has none; returns its folder.

    Only its name and its functions' names go into the library that is linked.
    """
    folder = build / "stub"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "torch_cuda.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in TORCH_CUDA_FUNCTIONS))
    name = "libtorch_cuda.so"
    subprocess.run(
        [
            *compiler,
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
            "-x",
            "c",
            source,
            "-o",
            folder / name,
        ],
        check=True,
    )
    return str(folder)


def static_runtime() -> list[str]:
    """Linker arguments for CUDA's runtime, inside the library.

    Static, so that nothing asks for the libcudart of one CUDA major: the runtime finds the driver
    by itself, and a driver serves every older runtime.
    """
    folders = [home() / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    for folder in folders:
        if (folder / "libcudart_static.a").is_file():
            return [str(folder / "libcudart_static.a"), "-lrt", "-lpthread", "-ldl"]
    raise SystemExit(f"there is no libcudart_static.a in {' or '.join(map(str, folders))}")
