"""The CUDA half of what is compiled here: what for, by which nvcc, and whether that can be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from lltm import _compile

KERNELS = (
    "cuda/gates.cu",
    "cuda/heads.cu",
    "cuda/matrices.cu",
    "cuda/persistent.cu",
    "cuda/resets.cu",
    "cuda/runtime.cu",
)
SOURCES = ("native/cuda_binding.cpp", *KERNELS)
"""Of :mod:`lltm.jit`."""


NO_NVCC = "there is no nvcc; put it on PATH, or name the toolkit in CUDA_HOME"


def unavailable_reason() -> str | None:
    """Why no CUDA kernels can be built here, as one clause, or ``None``.

    Asks the driver for a GPU, which ``import lltm`` never does.
    """
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no GPU to build for"
    if home() is None:
        return NO_NVCC
    return None


def home() -> Path | None:
    """The toolkit, where torch's own builds look for it; ``None`` without its nvcc."""
    # torch without CUDA does not look for it.
    named = _compile.cpp_extension().CUDA_HOME or os.environ.get("CUDA_HOME")
    on_path = shutil.which("nvcc")
    found = Path(named) if named else Path(on_path or "").resolve().parent.parent
    return found if (found / "bin" / "nvcc").is_file() else None


def architecture() -> str:
    """Of the current GPU, such as ``sm_90``."""
    return _image(*torch.cuda.get_device_capability())


def architectures() -> tuple[str, ...]:
    """Of every GPU that torch sees."""
    found = map(torch.cuda.get_device_capability, range(torch.cuda.device_count()))
    return tuple(sorted({_image(*capability) for capability in found}))


def _image(major: int, minor: int) -> str:
    return f"sm_{major}{minor}"


def generate_flags(images: Sequence[str]) -> list[str]:
    """For nvcc: ``sm_90`` is machine code, ``compute_90`` PTX."""
    return [f"-gencode=arch=compute_{name.split('_')[1]},code={name}" for name in images]


def compiler_flags(architecture: str, host: tuple[str, ...]) -> list[str]:
    """For nvcc: this GPU and no other; ``host`` are the C++ compiler's own."""
    listed = f'-DLLTM_CUDA_ARCHITECTURES="\\"{architecture}\\""'
    return ["-O3", *generate_flags([architecture]), listed, *host_flags(host)]


def host_flags(flags: Sequence[str]) -> list[str]:
    """The C++ compiler's flags for nvcc, which reads definitions itself and hands on the rest."""
    defines = [flag for flag in flags if flag.startswith("-D")]
    return [*defines, *(f"-Xcompiler={flag}" for flag in flags if flag not in defines)]


def _toolkit(home: Path) -> Path:
    """The folder that nvcc itself works in: the nvcc in ``home`` may be a link or a script."""
    command = [str(home / "bin" / "nvcc"), "--dryrun", "-x", "cu", os.devnull, "-c"]
    try:
        steps = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return home
    named = re.search(r"^#\$ TOP=(.+)$", steps, re.MULTILINE)
    return Path(named.group(1)).resolve() if named else home


def link_flags() -> list[str]:
    """CUDA's runtime, in the library, as in the wheel (``build_support.cuda.static_runtime``)."""
    found = home()
    assert found is not None
    folder = _toolkit(found)
    places = ("lib64", "lib", "targets/x86_64-linux/lib")
    static = (folder / name / "libcudart_static.a" for name in places)
    runtime = next((path for path in static if path.is_file()), None)
    # As needed, for torch names the shared runtime behind these.
    return ["-Wl,--as-needed", *([str(runtime)] if runtime else []), "-lrt", "-lpthread", "-ldl"]
