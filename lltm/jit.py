"""Build the native binding on this machine, for this torch and this processor, when asked to.

The tutorial's just-in-time road: the same sources as the installed library, compiled with ninja and
rebuilt only where they changed. The result stands beside the installed library, in its own
namespace, as the backends ``jit`` (fused) and ``aten``; where torch has CUDA and there is a GPU,
and nvcc, ``jit_cuda`` has the CUDA kernels for exactly that GPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lltm import _jit_cuda, _library, _processor, backends, ops
from lltm._build import REINSTALL
from lltm._compile import cpp_extension, watched_in
from lltm._jit_cache import Cache

if TYPE_CHECKING:
    from filelock import FileLock

NAMESPACE = "lltm_jit"
LIBRARY = f"{NAMESPACE}{'.pyd' if sys.platform == 'win32' else '.so'}"
"""As torch.utils.cpp_extension names it."""
BINDING = "native/binding.cpp"
KERNEL_SETS = {"AVX2": "avx2", "AVX512": "avx512"}
"""Those of csrc/cpu, by what torch calls the processors they are for; ``baseline`` is for all."""
TILE_SOURCES = ("cpu/amx.cpp", "cpu/bf16_dot.cpp")
"""Products of bfloat16 beside the kernels of SETS_WITH_TILES, where the processor has them."""
SETS_WITH_TILES = ("avx512", *(("baseline",) if platform.machine() == "aarch64" else ()))
"""Whose file has kernels by tiles beside its own."""
OPTIMISE = ("-O2", "-march=native")
"""For this processor and no other; the installed library is built without the second."""
FLAGS = (
    "-fvisibility=hidden",
    "-Wno-psabi",
    f"-DLLTM_NAMESPACE={NAMESPACE}",
)
POLL_SECONDS = 1.0


def source_directory() -> Path:
    """Where the C++ sources are: inside the installed package, else beside it in a checkout.

    Raises:
        ImportError: they are in neither place.
    """
    package = Path(__file__).parent
    for candidate in (package / "csrc", package.parent / "csrc"):
        if (candidate / "contract.h").is_file():
            return candidate
    raise ImportError(f"lltm's C++ sources were not found in {package}; {REINSTALL}")


def cache_directory() -> Path:
    """Where torch keeps what it builds: ``TORCH_EXTENSIONS_DIR``, else a folder of the user's.

    Raises:
        ImportError: there is no such folder, or no library can be loaded from it.
    """
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    try:
        folder = Path(chosen).absolute() if chosen else Path.home() / ".cache" / "torch_extensions"
    except RuntimeError:
        raise ImportError(
            "there is no folder to keep compiled kernels in, for HOME is not set and this user has "
            "no home directory; name one in TORCH_EXTENSIONS_DIR"
        ) from None
    if _is_noexec(folder):
        raise ImportError(
            f"no library can be loaded from {folder}, whose file system is mounted noexec; name "
            f"another folder in TORCH_EXTENSIONS_DIR"
        )
    return folder


def _is_noexec(folder: Path) -> bool:
    """Whether the file system of a folder, which may be still to be made, is mounted so."""
    if sys.platform != "linux":
        return False
    while not folder.exists():
        folder = folder.parent
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def processor() -> str:
    """What the kernels that this processor has use of it."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _native_target() -> str:
    """What ``-march=native`` compiles for: one of many processors that are the same to torch."""
    found = _processor.read()
    numbers = (found.vendor, found.family, found.model, found.stepping)
    return " ".join(map(str, (*numbers, *found.instruction_sets)))


def kernel_set() -> str:
    """The strongest kernels that this processor runs; it has no use for the others."""
    return KERNEL_SETS.get(torch.backends.cpu.get_cpu_capability(), "baseline")


def kernel_sources() -> tuple[str, ...]:
    """Of the CPU's kernels, to be compiled with :func:`kernel_flags`."""
    tiles = TILE_SOURCES if kernel_set() in SETS_WITH_TILES else ()
    return ("cpu/kernels.cpp", f"cpu/kernels_{kernel_set()}.cpp", *tiles)


def kernel_flags() -> tuple[str, ...]:
    """What says that there are no other kernels to choose from."""
    tiles = ("-DLLTM_ONLY_TILED_KERNEL_SETS",) if kernel_set() in SETS_WITH_TILES else ()
    return (f"-DLLTM_ONLY_KERNEL_SET=k{kernel_set().capitalize()}", *tiles)


def build_directory(optimise: tuple[str, ...] = OPTIMISE, gpu: str | None = None) -> Path:
    """Where this torch's and this processor's build lives.

    Under ``TORCH_EXTENSIONS_DIR`` (default ``~/.cache/torch_extensions``), in a folder of
    its own for each torch, compiler, processor, GPU architecture and choice of flags, so that none
    can meet another's objects, on the home directory of a cluster either.
    """
    compiler = os.environ.get("CXX", "c++")
    target = f"{processor()} {_native_target()}"
    key = "\n".join(
        (torch.__version__, target, compiler, str(source_directory()), gpu or "", *optimise)
    )
    return cache_directory() / f"{NAMESPACE}_{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def exports() -> list[str]:
    """What keeps a library's own names to itself, for the linker."""
    # Not -Wl, which would split the path at a comma.
    script = ["-Xlinker", f"--version-script={source_directory() / 'exports.map'}"]
    return script if sys.platform.startswith("linux") else []


def _say(message: str, who: str = "lltm.jit") -> None:
    print(f"{who}: {message}", file=sys.stderr, flush=True)


def _remove_stale_lock(directory: Path) -> None:
    """Remove the lock file that a killed build of torch.utils.cpp_extension left.

    Ours is held now, and the system frees it when its holder dies; so nobody is building here, and
    torch's lock, which is a mere file, has no owner. torch would wait for it for ever. From 2.15 on
    the system frees torch's lock, too: its file is always there and stops nobody.
    """
    stale = directory / "lock"
    if hasattr(cpp_extension(), "FileBaton") and stale.exists():
        _say(f"removing {stale}, a stale lock of a build that was killed")
        stale.unlink()


def _compile(directory: Path, verbose: bool, optimise: tuple[str, ...], gpu: str | None) -> None:
    sources = source_directory()
    link = [*exports(), *(_jit_cuda.link_flags() if gpu else ())]
    names = (BINDING, *kernel_sources(), *(_jit_cuda.SOURCES if gpu else ()))
    torchs = cpp_extension()
    # torch would take what this process has tried to build before for built, failed or not.
    torchs.JIT_EXTENSION_VERSIONER.entries.pop(NAMESPACE, None)
    torchs.load(
        name=NAMESPACE,
        sources=[str(sources / name) for name in names],
        extra_cflags=[*optimise, *FLAGS, *kernel_flags()],
        extra_cuda_cflags=_jit_cuda.compiler_flags(gpu, FLAGS) if gpu else None,
        # torch writes them into ninja's file, and ninja gives them to a shell, as they are.
        extra_ldflags=[shlex.quote(flag) for flag in link],
        build_directory=str(directory),
        is_python_module=False,
        verbose=verbose,
    )


def acquire(directory: Path, who: str) -> FileLock:
    """The lock on a build's folder, waited for with a message while another process holds it."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - torch's own dependency

    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / "lltm.lock")
    waiting = False
    while True:
        try:
            lock.acquire(timeout=0 if not waiting else POLL_SECONDS)
            return lock
        except Timeout:
            if not waiting:
                _say(f"another process is building in {directory}; waiting for it", who)
            waiting = True


def _load_finished(cache: Cache, error: OSError) -> None:
    """Where nothing can be written: what was built there before, if these sources gave it."""
    if not cache.is_finished():
        raise ImportError(
            f"lltm.jit.load() cannot write to {cache.directory} ({error}), and there is no "
            f"finished build of these sources in it; name another folder in TORCH_EXTENSIONS_DIR"
        ) from None
    torch.ops.load_library(cache.directory / cache.library)


def _check_compiler() -> None:
    """CXX names a program that is there; torch takes one with arguments up to 2.12."""
    named = os.environ.get("CXX", "c++")
    whole = _library.release(torch.__version__) >= (2, 13)
    if shutil.which(named if whole else named.partition(" ")[0]) is None:
        raise RuntimeError(
            f"there is no C++ compiler {named!r}; install one, such as with `apt install g++`, or "
            f"name one in CXX: one program, without arguments"
        )


def _build(cache: Cache, verbose: bool, optimise: tuple[str, ...], gpu: str | None) -> None:
    """Compile what changed, and load it; the folder's lock is held."""
    _remove_stale_lock(cache.directory)
    if damaged := cache.remove_damaged():
        _say(f"building {', '.join(damaged)} again: damaged since they were built")
    if sys.platform != "win32" and not cache.is_finished():
        _check_compiler()
    with watched_in(cache.directory):
        _compile(cache.directory, verbose, optimise, gpu)
    with contextlib.suppress(OSError):  # a full disk: the next call will link again
        cache.note()


def _build_and_load(verbose: bool, optimise: tuple[str, ...]) -> None:
    without_gpu = _jit_cuda.unavailable_reason()
    gpu = None if without_gpu else _jit_cuda.architecture()
    cache = Cache(build_directory(optimise, gpu), LIBRARY, source_directory())
    start = time.perf_counter()
    try:
        lock = acquire(cache.directory, "lltm.jit")
    except OSError as error:
        _load_finished(cache, error)
    else:
        try:
            _build(cache, verbose, optimise, gpu)
        except OSError as error:  # of a write, which does not say where
            raise OSError(f"{cache.directory}: {error}") from error
        finally:
            lock.release()
    if verbose and without_gpu:
        _say(f"without CUDA kernels: {without_gpu}")
    if verbose:
        _say(f"ready in {time.perf_counter() - start:.1f} s")
    ops.register(NAMESPACE, native=True)
    _library.register_namespace("jit", NAMESPACE)
    if gpu:
        _library.register_namespace("jit_cuda", NAMESPACE)
    else:
        ops.register_missing_cuda(
            NAMESPACE, f"lltm.jit.load() built no CUDA kernels: {without_gpu}"
        )


def load(verbose: bool = False, optimise: tuple[str, ...] = OPTIMISE) -> backends.Backend:
    """Build and load the native binding for exactly this machine's torch and processor.

    The first call compiles (about half a minute); a later one, in any process, compiles only what
    changed or was damaged since. A lock left by a killed build is taken over; one held by a living
    process is waited for, with a message. A finished build needs no folder that can be written. The
    CUDA kernels are compiled, too, where torch has CUDA and sees a GPU and nvcc is found;
    ``verbose`` prints why not.

    Args:
        verbose: show the compiler's commands.
        optimise: the compiler's flags for optimisation; a process keeps those it loaded first.

    Returns:
        The backend ``jit``; ``aten`` is available from now on, too, and so is ``jit_cuda`` where
        there are CUDA kernels: tensors on the GPU go to it unless another one is named.

    Raises:
        ImportError: the sources or ninja are missing, a compiler failed, or there is no finished
            build and no folder to write one to; says which.
        TypeError: ``optimise`` is one string.

    Source: PyTorch tutorial "Custom C++ and CUDA Extensions", ``torch.utils.cpp_extension.load``.
    """
    if isinstance(optimise, str):
        raise TypeError(f"optimise must be a tuple of flags, such as ('-O3',), got {optimise!r}")
    with _library.loading():
        if "jit" not in _library.namespaces():
            try:
                _build_and_load(verbose, optimise)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                raise ImportError(
                    f"lltm.jit.load() could not build for torch {torch.__version__}: {error}"
                ) from error
    return backends.get("jit")
