"""The CUDA half of a cell's library: a library of its own, which adds kernels to the cell's ops."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lltm import _compile, _jit_cuda, jit

SOURCES = ("stable/any_cuda_binding.cpp", "host/single_threaded.cpp", *_jit_cuda.KERNELS)
TORCH_CUDA_FUNCTIONS = ("aoti_torch_get_current_cuda_stream", "aoti_torch_cuda_mm_out")
"""What the binding takes from libtorch_cuda, as ``build_support.cuda`` has them."""
ARCHITECTURE = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")


def images(architectures: str) -> tuple[str, ...]:
    """The GPU programs of a list as ``TORCH_CUDA_ARCH_LIST`` has it: ``9.0;12.0+PTX``.

    Raises:
        ValueError: an architecture is misspelt.
    """
    names = []
    for entry in re.split(r"[;,\s]+", architectures.strip()):
        match = ARCHITECTURE.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} is no GPU architecture; write 9.0 or 12.0+PTX")
        number = "".join(match.group(1, 2, 3))
        names += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return tuple(names)


def nvcc() -> Path:
    """The CUDA compiler.

    Raises:
        CompileError: there is none.
    """
    home = _jit_cuda.home()
    if home is None:
        raise _compile.CompileError(_jit_cuda.NO_NVCC)
    return home / "bin" / "nvcc"


def compile_library(
    path: Path, flags: Sequence[str], images: Sequence[str], link_flags: Sequence[str]
) -> None:
    """Compile the kernels of the cell that ``flags`` name; needs no GPU and no CUDA in torch.

    Args:
        path: of the library, in a folder for it alone.
        flags: of both compilers, beside their own.
        images: what nvcc generates: ``sm_90``, ``compute_90``.
        link_flags: of the linker.

    Raises:
        CompileError: a compiler is missing or failed.
    """
    host = ["-ccbin", _compile.without_launcher()] if os.environ.get("CXX") else []
    command = [
        *(str(nvcc()), *host, *_jit_cuda.generate_flags(images), "-std=c++17", "-O3", "-w"),
        f'-DLLTM_CUDA_ARCHITECTURES="{", ".join(images)}"',
        *_jit_cuda.host_flags(("-fPIC", "-fvisibility=hidden", *flags)),
    ]
    csrc = jit.source_directory()
    stub = [f"-L{_link_stub(path.parent)}", "-ltorch_cuda", "-Wl,--no-undefined"]
    _compile.Library(
        path,
        [csrc / name for name in SOURCES],
        flags,
        [*stub, *_jit_cuda.link_flags(), *link_flags],
        command,
    ).compile()


def _link_stub(folder: Path) -> Path:
    """A libtorch_cuda.so to link against, for torch's CPU wheel has none; returns its folder.

    Only its name and its functions' names go into the library that is linked.
    """
    made = folder / "stub"
    made.mkdir(exist_ok=True)
    source = made / "torch_cuda.cpp"
    functions = (f'extern "C" void {name}() {{}}\n' for name in TORCH_CUDA_FUNCTIONS)
    source.write_text("".join(functions), encoding="utf-8")
    name = "libtorch_cuda.so"
    command = [*_compile.compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    done = subprocess.run(
        [*command, str(source), "-o", str(made / name)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise _compile.CompileError(f"{name} could not be made to link against: {done.stderr}")
    return made
