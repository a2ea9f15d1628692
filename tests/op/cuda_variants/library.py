"""Build and load the packed-accessor kernels with nvcc, for the GPU of this machine."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils import cpp_extension

import lltm

HERE = Path(__file__).parent
INSTALLED = Path(lltm.__file__).parent  # csrc/ travels in the wheel
SOURCE = HERE / "binding.cpp"


def command(architecture: str, target: Path) -> list[str]:
    """The compiler's command: plain nvcc against the stable headers, as for the wheel."""
    includes = [INSTALLED, *map(Path, cpp_extension.include_paths())]
    return [
        str(shutil.which("nvcc") or "nvcc"),
        *("-std=c++17", "-O3", "-shared", "-Xcompiler=-fPIC", "-x", "cu"),
        f"-arch={architecture}",
        "-DTORCH_TARGET_VERSION=0x020a000000000000",
        *(f"-I{path}" for path in includes),
        str(SOURCE),
        *(f"-L{path}" for path in cpp_extension.library_paths()),
        # torch's CUDA functions are found through this name alone: Python loads torch's libraries
        # without showing them to others.
        *(() if torch.version.cuda is None else ("-ltorch_cuda",)),
        *("-ltorch_cpu", "-lc10", "-o", str(target)),
    ]


def build(cache: Path, architecture: str) -> Path:
    """The shared library, compiled unless the cache has it.

    Raises:
        RuntimeError: nvcc is missing or failed.
    """
    known = hashlib.sha256(f"{torch.__version__} {architecture}".encode())
    for path in sorted([SOURCE, *HERE.glob("*.h"), *(INSTALLED / "csrc").rglob("*.h")]):
        known.update(path.name.encode() + path.read_bytes())
    library = cache / f"packed_accessor_{known.hexdigest()[:16]}.so"
    if not library.exists():
        if shutil.which("nvcc") is None:
            raise RuntimeError("there is no nvcc on PATH")
        cache.mkdir(parents=True, exist_ok=True)
        half = library.with_suffix(".partial")
        done = subprocess.run(
            command(architecture, half), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"nvcc could not compile the packed accessors:\n{done.stderr}")
        half.replace(library)
    return library


@functools.cache
def load(cache: Path, architecture: str) -> None:
    """Register ``torch.ops.lltm_packed_accessor`` for CUDA tensors, once.

    Raises:
        RuntimeError: it cannot be built.
    """
    torch.ops.load_library(build(cache, architecture))
