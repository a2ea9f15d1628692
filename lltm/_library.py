"""Find, judge and load the shared library that carries the kernels.

The judgement comes before the loader: a library built for another torch is refused with one
sentence, because loading it can end the process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import sys
import threading
from pathlib import Path

import torch

from lltm._build import REINSTALL, Build
from lltm._integrity import damage

DIRECTORY = Path(__file__).parent / "lib"
NAMES = {"linux": "liblltm.so", "darwin": "liblltm.dylib", "win32": "lltm.dll"}
# Beside it where cells of lltm.cells were compiled, which not every process uses.
CELLS_NAMES = {name: file.replace("lltm", "lltm_cells", 1) for name, file in NAMES.items()}
# Beside the library with the schemas, because a torch without CUDA could not load it.
CUDA_NAME = "liblltm_cuda.so"
BUILD_HERE = "pip install --force-reinstall --no-deps --no-build-isolation --no-binary lltm lltm"
REBUILD = f"rebuild it for this torch with `{BUILD_HERE}`"
_locks: dict[int, contextlib.AbstractContextManager[bool]] = {}
"""By process: a fork has no thread that could release its parent's."""


def loading() -> contextlib.AbstractContextManager[bool]:
    """Held by the thread that builds or loads kernels; a file's lock is for other processes."""
    return _locks.setdefault(os.getpid(), threading.RLock())


def host_platform() -> str:
    """The platform of this process, such as ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}"


def release(version: str) -> tuple[int, int]:
    """Major and minor of a version string: ``2.13.0+cpu`` gives ``(2, 13)``."""
    major, minor = version.split("+", maxsplit=1)[0].split(".")[:2]
    return int(major), int(minor)


def incompatibility(build: Build, torch_version: str) -> str | None:
    """Why a library must not be loaded beside this torch, as one sentence, or ``None``."""
    found = release(torch_version)
    if build.platform != host_platform():
        return (
            f"lltm's library was built for {build.platform}, this machine is {host_platform()}; "
            "reinstall lltm on this machine"
        )
    if build.binding == "native" and release(build.torch) != found:
        return (
            f"lltm's native library was built for torch {build.torch}, this is torch "
            f"{torch_version}; {REBUILD}, or install the stable build, which serves both"
        )
    if build.torch_target is not None and found < release(build.torch_target):
        return (
            f"lltm's stable library needs torch {build.torch_target} or newer, this is torch "
            f"{torch_version}; upgrade with `pip install 'torch>={build.torch_target}'`"
        )
    return None


@functools.cache
def build() -> Build:
    """The installed library's description.

    Raises:
        ImportError: there is none, or it is damaged.
    """
    return Build.read(DIRECTORY / "build.json")


def _load_whole(path: Path, named: str, beside: str, remedy: str = REBUILD) -> None:
    """Load a library, or say in one sentence what is wrong with it: damaged, or refused."""
    try:
        problem = damage(path, build().libraries.get(path.name))
    except OSError as error:
        problem = str(error)
    if problem is not None:
        raise ImportError(f"{path} is damaged ({problem}); {REINSTALL}")
    try:
        torch.ops.load_library(path)
    except OSError as error:
        # torch puts its own words around the loader's, which name the symbol or the version.
        raise ImportError(
            f"{named} cannot be loaded beside {beside}: {error.__cause__ or error}; {remedy}"
        ) from None


@functools.cache
def load() -> Build:
    """Load the installed library, once, and return its description.

    Raises:
        ImportError: it is missing, foreign or cannot be loaded; one sentence that names both sides
            and the command that fixes it.
    """
    description = build()
    if (reason := incompatibility(description, torch.__version__)) is not None:
        raise ImportError(reason)
    built = f"built on torch {description.torch} by {description.compiler}"
    named = f"lltm's {description.binding} library ({built})"
    path = DIRECTORY / NAMES.get(sys.platform, NAMES["linux"])
    _load_whole(path, named, f"torch {torch.__version__}")
    return description


@functools.cache
def load_cells() -> None:
    """Load the cells of lltm.cells that were compiled with the library, once.

    Raises:
        ImportError: they are missing, damaged or cannot be loaded.
    """
    path = DIRECTORY / CELLS_NAMES.get(sys.platform, CELLS_NAMES["linux"])
    _load_whole(path, str(path), f"torch {torch.__version__}", remedy=REINSTALL)


@functools.cache
def load_cuda() -> bool:
    """Load the CUDA kernels, once, where this build and this torch both have CUDA.

    That registers them and no more: no driver is asked for and no GPU is looked at, so that a
    process may still fork, or choose its devices, after ``import lltm``.

    Returns:
        Whether they are loaded.

    Raises:
        ImportError: they are there but cannot be loaded.
    """
    release = build().cuda
    if release is None or torch.version.cuda is None:
        return False
    named = f"lltm's CUDA kernels (CUDA {release})"
    beside = f"torch {torch.__version__} (CUDA {torch.version.cuda})"
    _load_whole(DIRECTORY / CUDA_NAME, named, beside)
    return True


def missing_cuda() -> str:
    """What to tell who brings a CUDA tensor where no CUDA kernels are loaded, as one sentence."""
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} is a build without CUDA; install a CUDA build of torch, "
            f"then an lltm with CUDA kernels"
        )
    release, major = build().version.split("+")[0], torch.version.cuda.split(".")[0]
    return (
        f"this build of lltm has no CUDA kernels; install one that has with `conda install "
        f"'lltm=*=cuda*'` or `pip install 'lltm=={release}+cu{major}'`, build it with "
        f"`LLTM_CUDA=1 {BUILD_HERE}` or, for this GPU alone, with lltm.jit.load(), or compute "
        f"without kernels of its own with backend='reference'"
    )


_namespaces: dict[str, str] = {}


def register_namespace(binding: str, namespace: str) -> None:
    """Note that a binding's ops are registered, and where."""
    _namespaces[binding] = namespace


def namespaces() -> dict[str, str]:
    """The bindings whose ops are registered in this process, each with its namespace."""
    return _namespaces
