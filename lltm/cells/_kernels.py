"""The kernels of a cell: compiled from its functor at first use, kept for every later process.

Those for CUDA are a library of their own, compiled when the first CUDA tensor comes: it adds its
kernels to the ops that the library for the CPU defines.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from lltm import _compile, _jit_cuda, _library, contract, jit
from lltm._jit_cache import Cache, hash_of_sources
from lltm._version import __version__
from lltm.cells import _cuda
from lltm.cells._definition import Definition, check_cell
from lltm.cells._functor import Functor, functor
from lltm.cells._registration import register

BINDING = "stable/any_binding.cpp"
HEADER = "cell.inc"
_of_definitions: dict[Definition, str | None] = {}
_of_functors: dict[Functor, str | None] = {}
_on_cuda: dict[str, bool] = {}
"""By namespace: whether the ops have CUDA kernels, where that was looked at."""
_warned: set[str] = set()


def report(message: str) -> None:
    """Print what is compiled, while it is."""
    print(f"lltm.cells: {message}", file=sys.stderr, flush=True)


def namespace(definition: Definition, device: str = "cpu") -> str | None:
    """Where the cell's ops are in ``torch.ops``; None where the reference has to do.

    Args:
        definition: the cell.
        device: ``cpu`` or ``cuda``, of the tensors.
    """
    if definition not in _of_definitions:
        with _library.loading():
            _of_definitions[definition] = _of_functor(definition)
    found = _of_definitions[definition]
    if found is None or device == "cpu":
        return found
    if found not in _on_cuda:
        with _library.loading():
            if found not in _on_cuda:
                _on_cuda[found] = _cuda_loaded(definition)
    return found if _on_cuda[found] else None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch leaves it so
def _traced(device: str, form: str) -> str | None:
    return namespace(Definition.of_form(form), device)


def traced_namespace(definition: Definition, device: str) -> str | None:
    """As :func:`namespace`, while Dynamo traces.

    What it hands over must be constant: no dataclass before torch 2.12, nor an int or a float,
    which may be symbols, nor a function, of which another one is taken for the same.
    """
    found: str | None = _traced(device, definition.form)
    return found


def prepare(cell: Definition, device: torch.device | str = "cpu") -> bool:
    """Compile a cell now, and not when it is first called: a service would rather start slowly.

    Args:
        cell: what :func:`lltm.cells.define` returned.
        device: of the tensors to come, ``cpu`` or ``cuda``.

    Returns:
        Whether it has kernels; where not, it runs step by step in PyTorch, and a warning says why.

    Raises:
        TypeError: ``cell`` is no cell.
        ValueError: ``device`` is one that there are never kernels for.
    """
    check_cell(cell)
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {device}")
    return namespace(cell, kind) is not None


def attach(
    cell: Definition, library: Path | str, cuda_library: Path | str | None = None
) -> Definition:
    """Use libraries that ``python -m lltm.cells build`` made, and compile nothing.

    What has its kernels already keeps them, as the LLTM does, whose are in lltm's wheel.

    Args:
        cell: the cell that the library was built from.
        library: its path.
        cuda_library: that of its CUDA kernels, which are loaded where torch has CUDA.

    Returns:
        The cell.

    Raises:
        ImportError: a library cannot be loaded, or another step or another lltm gave it.
        TypeError: ``cell`` is no cell.
    """
    check_cell(cell)
    made = functor(cell)
    namespace = made.namespace
    with _library.loading():
        if _of_functors.get(made) is None:
            if not _is_defined(namespace):
                _load(library)
            if not _is_defined(namespace):
                raise ImportError(
                    f"{library} was not built from this step of {cell.name} by lltm {__version__}; "
                    f"build it again with `python -m lltm.cells build`"
                )
            register(namespace, cell, made.saved)
            _of_functors[made] = namespace
        has_cuda = _on_cuda.get(namespace, False) or torch.version.cuda is None
        if cuda_library is not None and not has_cuda:
            _load(cuda_library)
            _on_cuda[namespace] = True
    return cell


def _is_defined(namespace: str) -> bool:
    """Whether a library has brought the ops: lltm's own have those of the LLTM and its build's."""
    if namespace in _library.build().cells.values():
        _library.load_cells()
    return hasattr(getattr(torch.ops, namespace), "sequence")


def _load(library: Path | str) -> None:
    try:
        torch.ops.load_library(library)
    except OSError as error:
        raise ImportError(f"{library} cannot be loaded: {error}") from None


def _of_functor(definition: Definition) -> str | None:
    made = functor(definition)
    if made not in _of_functors:
        _of_functors[made] = _loaded(definition, made)
    return _of_functors[made]


def _loaded(definition: Definition, made: Functor) -> str | None:
    if not _is_defined(made.namespace):
        reason = _failure(definition, made)
        if reason is not None:
            _warn(definition, "", reason)
            return None
    register(made.namespace, definition, made.saved)
    return made.namespace


def _cuda_loaded(definition: Definition) -> bool:
    reason = _jit_cuda.unavailable_reason() or _failure(
        definition, functor(definition), _jit_cuda.architectures()
    )
    if reason is not None:
        _warn(definition, " on CUDA tensors", reason)
    return reason is None


def _failure(definition: Definition, made: Functor, images: tuple[str, ...] = ()) -> str | None:
    """Why a cell's library could not be compiled or loaded; None once it is here."""
    try:
        torch.ops.load_library(CellBuild.of(definition, made, images).finished_library())
    except (_compile.CompileError, OSError, ImportError) as error:
        return str(error)
    return None


def _warn(definition: Definition, where: str, reason: str) -> None:
    if (where + reason) not in _warned:
        _warned.add(where + reason)
        warnings.warn(
            f"lltm.cells computes {definition.name} step by step in PyTorch{where}, several times "
            f"slower than compiled: {reason}",
            RuntimeWarning,
            stacklevel=contract.users_level(),
        )


@dataclass(frozen=True)
class CellBuild:
    """The build of one functor for this torch and this processor, or for GPUs.

    Attributes:
        title: the cell's name.
        made: its functor.
        directory: its folder in the cache, with all that the library depends on in its name.
        images: the GPU programs to compile, such as ``sm_90``; none for the CPU's kernels.
    """

    title: str
    made: Functor
    directory: Path
    images: tuple[str, ...] = ()

    @staticmethod
    def of(definition: Definition, made: Functor, images: tuple[str, ...] = ()) -> CellBuild:
        """In the cache of :mod:`lltm.jit`; Pythons that have the same torch share it."""
        key = "\n".join(
            (
                *(made.text, torch.__version__, jit.processor(), *_compile.compiler()),
                *(hash_of_sources(jit.source_directory()), *_compile.FLAGS),
                *((str(_cuda.nvcc().resolve()), *images) if images else ()),
            )
        )
        name = f"lltm_cells_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        return CellBuild(definition.name, made, jit.cache_directory() / name, images)

    @property
    def cache(self) -> Cache:
        """What is noted of the build."""
        half = "_cuda" if self.images else ""
        return Cache(self.directory, f"{self.made.namespace}{half}.so", jit.source_directory())

    def finished_library(self) -> Path:
        """The library, compiled if it is not there whole.

        Raises:
            CompileError: a compiler failed or is missing, or there is no folder to write to.
        """
        cache = self.cache
        if not cache.is_finished():
            if (reason := _compile.unavailable_reason()) is not None:
                raise _compile.CompileError(reason)
            try:
                self._finish(cache)
            except OSError as error:
                raise _compile.CompileError(
                    f"{self.directory} cannot be written ({error}); name another folder in "
                    f"TORCH_EXTENSIONS_DIR"
                ) from None
        return self.directory / cache.library

    def _finish(self, cache: Cache) -> None:
        lock = jit.acquire(self.directory, "lltm.cells")
        try:
            if not cache.is_finished():  # by whom the lock was held
                self._compile(self.directory / cache.library)
                with contextlib.suppress(OSError):  # a full disk: the next process compiles again
                    cache.note()
        finally:
            lock.release()

    def _compile(self, library: Path) -> None:
        target = ", ".join(self.images) or "this processor"
        about = "a minute" if self.images else "ten seconds"
        report(f"compiling {self.title} for {target}, once; takes about {about}")
        start = time.perf_counter()
        header = self.directory / HEADER
        header.write_text(self.made.text, encoding="utf-8")
        flags = functor_flags(self.made, header)
        try:
            if self.images:
                _cuda.compile_library(library, flags, self.images, jit.exports())
            else:
                _compile_for_processor(library, flags)
        except _compile.CompileError as error:
            raise _compile.CompileError(_kept(self.directory, error)) from None
        report(f"{self.title} is ready after {time.perf_counter() - start:.1f} s")


def _kept(directory: Path, error: _compile.CompileError) -> str:
    """The first error, and where the rest is."""
    log = directory / "compiler.log"
    try:
        log.write_text(f"{error}\n", encoding="utf-8")
    except OSError:  # a full disk, which may be why the compiler failed
        return str(error)
    return f"{error.first()} (all that the compiler said is in {log})"


def _compile_for_processor(library: Path, flags: list[str]) -> None:
    csrc = jit.source_directory()
    sources = [csrc / name for name in (BINDING, *jit.kernel_sources())]
    flags = [*flags, *jit.kernel_flags()]
    _compile.Library(library, sources, flags, jit.exports()).compile()


def functor_flags(made: Functor, header: Path) -> list[str]:
    """What makes the engine of any cell that of one."""
    return [
        "-DLLTM_ONLY_SEQUENCES",
        f"-DLLTM_NAMESPACE={made.namespace}",
        f"-DLLTM_CELL={made.struct}",
        f"-I{header.parent}",  # whose characters may have a meaning in a string of C++
        f'-DLLTM_CELL_HEADER="{header.name}"',
    ]
