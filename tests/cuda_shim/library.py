"""Build and load the CUDA kernels for the CPU: the wheel's own ``.cu`` files against the shim."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from lltm import _library, jit, ops
from lltm.cells._functor import Functor

HERE = Path(__file__).parent
VARIANTS = HERE.parent / "op" / "cuda_variants"
CSRC = jit.source_directory()
NAMESPACE = "lltm_cuda_shim"
QUICKLY = "-O0"  # less time to compile than it costs to run
SANITIZE = (
    QUICKLY,
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
OLDEST_TORCH = (2, 10)


class Schedule(IntEnum):
    """In which order the threads of a block run."""

    FORWARD = 0
    REVERSE = 1
    SHUFFLED = 2


def compiler() -> str:
    """The C++ compiler that torch's own builds would take."""
    return str(cpp_extension.get_cxx_compiler())


def unavailable_reason() -> str | None:
    """Why the shim cannot be built here, or ``None``."""
    if _library.release(torch.__version__) < OLDEST_TORCH:
        return "its binding needs the stable headers of torch 2.10 or newer"
    try:
        subprocess.run([compiler(), "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"there is no C++ compiler {compiler()!r}"
    return None


def _kernels() -> list[Path]:
    return sorted((CSRC / "cuda").glob("*.cu"))


def _flags(*extra: str) -> list[str]:
    includes = [HERE / "include", CSRC.parent, HERE, *map(Path, cpp_extension.include_paths())]
    return [
        "-std=c++17",
        "-DTORCH_TARGET_VERSION=0x020a000000000000",
        '-DLLTM_CUDA_ARCHITECTURES="sm_75, sm_80"',
        *(f"-I{path}" for path in includes),
        "-O1",
        "-g1",
        "-fPIC",
        "-fno-strict-aliasing",  # as nvcc compiles device code
        "-w",
        *extra,
    ]


def _digest(flags: list[str], sources: list[Path]) -> str:
    digest = hashlib.sha256("\n".join([compiler(), torch.__version__, *flags]).encode())
    headers = [*HERE.rglob("*.h"), *VARIANTS.glob("*.h"), *CSRC.rglob("*.h"), *CSRC.rglob("*.inc")]
    for path in sorted([*headers, *sources]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def build(cache: Path, sanitize: bool = False) -> Path:
    """The shared library for this torch and these sources, compiled unless the cache has it."""
    sources = [*_kernels(), *sorted(HERE.glob("*.cpp")), VARIANTS / "binding.cpp"]
    return _built(cache, "cuda_shim", sources, SANITIZE if sanitize else ())


def build_cell(cache: Path, functor: Functor, namespace: str) -> Path:
    """The library of a cell's ops, in a namespace of its own."""
    header = cache / f"{functor.digest}.inc"
    if not header.exists():
        written = cache / f"{functor.digest}.{os.getpid()}"
        written.write_text(functor.text, encoding="utf-8")
        written.replace(header)
    extra = (
        QUICKLY,
        "-fvisibility=hidden",
        f"-DLLTM_NAMESPACE={namespace}",
        f"-DLLTM_CELL={functor.struct}",
        f'-DLLTM_CELL_HEADER="{header}"',
    )
    sources = [*_kernels(), HERE / "shim.cpp", HERE / "any" / "binding.cpp"]
    return _built(cache, namespace, sources, extra)


def _built(cache: Path, name: str, sources: list[Path], extra: Sequence[str]) -> Path:
    flags = _flags(*extra)
    library = cache / f"{name}_{_digest(flags, sources)}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=cache) as folder:

        def compiled(source: Path) -> Path:
            target = Path(folder) / f"{source.parent.name}_{source.name}.o"
            _run([compiler(), *flags, "-x", "c++", "-c", str(source), "-o", str(target)])
            return target

        with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
            objects = list(pool.map(compiled, sources))
        torch_libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
        linked = Path(folder) / library.name
        runtime = [flag for flag in extra if flag.startswith("-fsanitize")]
        inputs = [*map(str, objects), *torch_libraries, "-ltorch_cpu", "-lc10"]
        _run([compiler(), "-shared", *runtime, *inputs, "-o", str(linked)])
        linked.replace(library)  # in one move, for the other workers of pytest
    return library


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


@functools.cache
def load(library: Path) -> Any:
    """Load it, once, and give its ops all that is not a kernel; returns their namespace."""
    torch.ops.load_library(library)
    ops.register(NAMESPACE, native=False)
    return getattr(torch.ops, NAMESPACE)


@contextmanager
def device(  # one keyword a property of the device
    shim: Any,
    schedule: Schedule = Schedule.FORWARD,
    seed: int = 0,
    multiprocessors: int = 4,
    first_block: int = 0,
    launch_error: int = 0,
) -> Iterator[None]:
    """Let the shim pretend to be another device for a while."""
    shim.configure(int(schedule), seed, multiprocessors, first_block, launch_error)
    try:
        yield
    finally:
        shim.configure(int(Schedule.FORWARD), 0, 4, 0, 0)
