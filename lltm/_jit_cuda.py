"""The CUDA half of :mod:`lltm.jit`: what to compile for the GPU of this machine, if that can be."""

from __future__ import annotations

from pathlib import Path

import torch

SOURCES = (
    "native/cuda_binding.cpp",
    "cuda/gates.cu",
    "cuda/heads.cu",
    "cuda/matrices.cu",
    "cuda/persistent.cu",
    "cuda/resets.cu",
    "cuda/runtime.cu",
)


def unavailable_reason() -> str | None:
    """Why no CUDA kernels can be built here, as one clause, or ``None``.

    Asks the driver for a GPU, which ``import lltm`` never does.
    """
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no GPU to build for"
    if home() is None:
        return "there is no nvcc; put it on PATH, or name the toolkit in CUDA_HOME"
    return None


def home() -> Path | None:
    """The toolkit, where torch's own builds look for it; ``None`` without its nvcc."""
    from torch.utils import cpp_extension  # noqa: PLC0415 - slow to import, wanted only here

    found = Path(cpp_extension.CUDA_HOME or "")
    return found if (found / "bin" / "nvcc").is_file() else None


def architecture() -> str:
    """Of the current GPU, such as ``sm_90``."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def compiler_flags(architecture: str, host: tuple[str, ...]) -> list[str]:
    """For nvcc: this GPU and no other; ``host`` are the C++ compiler's own."""
    virtual = architecture.replace("sm", "compute")
    defines = [flag for flag in host if flag.startswith("-D")]
    return [
        "-O3",
        f"-gencode=arch={virtual},code={architecture}",
        f'-DLLTM_CUDA_ARCHITECTURES="\\"{architecture}\\""',
        *defines,
        *(f"-Xcompiler={flag}" for flag in host if flag not in defines),
    ]


def link_flags() -> list[str]:
    """CUDA's runtime, in the library, as in the wheel (``build_support.cuda.static_runtime``)."""
    folder = home()
    assert folder is not None
    static = (folder / name / "libcudart_static.a" for name in ("lib64", "lib"))
    found = next((path for path in static if path.is_file()), None)
    # As needed, for torch names the shared runtime behind these.
    return ["-Wl,--as-needed", *([str(found)] if found else []), "-lrt", "-lpthread", "-ldl"]
