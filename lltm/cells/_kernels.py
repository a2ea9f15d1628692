"""The kernels of a cell: compiled from its functor at first use, kept for every later process."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from lltm import _compile, jit
from lltm._jit_cache import Cache, hash_of_sources
from lltm._version import __version__
from lltm.cells._definition import Definition
from lltm.cells._functor import Functor, functor
from lltm.cells._registration import register

BINDING = "stable/any_binding.cpp"
HEADER = "cell.inc"
LOADING = threading.RLock()
_of_definitions: dict[Definition, str | None] = {}
_of_functors: dict[Functor, str | None] = {}
_warned: set[str] = set()


def _report(message: str) -> None:
    print(f"lltm.cells: {message}", file=sys.stderr, flush=True)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's
def namespace(definition: Definition) -> str | None:
    """Where the cell's ops are in ``torch.ops``; None where the reference has to do."""
    if definition not in _of_definitions:
        with LOADING:
            _of_definitions[definition] = _of_functor(definition)
    return _of_definitions[definition]


def prepare(cell: Definition) -> bool:
    """Compile a cell now, and not when it is first called: a service would rather start slowly.

    Args:
        cell: what :func:`lltm.cells.define` returned.

    Returns:
        Whether it has kernels; where not, it runs step by step in PyTorch, and a warning says why.
    """
    return namespace(cell) is not None


def attach(cell: Definition, library: Path | str) -> Definition:
    """Use a library that ``python -m lltm.cells build`` made, and compile nothing.

    Args:
        cell: the cell that the library was built from.
        library: its path.

    Returns:
        The cell.

    Raises:
        ImportError: the library cannot be loaded, or another step or another lltm gave it.
    """
    made = functor(cell)
    namespace = f"lltm_cell_{made.digest}"
    with LOADING:
        if _of_functors.get(made) is None:
            try:
                torch.ops.load_library(library)
            except OSError as error:
                raise ImportError(f"{library} cannot be loaded: {error}") from None
            if not hasattr(getattr(torch.ops, namespace), "sequence"):
                raise ImportError(
                    f"{library} was not built from this step of {cell.name} by lltm {__version__}; "
                    f"build it again with `python -m lltm.cells build`"
                )
            register(namespace, cell, made.saved)
            _of_functors[made] = namespace
    return cell


def _of_functor(definition: Definition) -> str | None:
    made = functor(definition)
    if made not in _of_functors:
        _of_functors[made] = _loaded(definition, made)
    return _of_functors[made]


def _loaded(definition: Definition, made: Functor) -> str | None:
    reason = _compile.unavailable_reason()
    if reason is None:
        try:
            build = CellBuild.of(definition, made)
            torch.ops.load_library(build.finished_library())
        except (_compile.CompileError, OSError, ImportError) as error:
            reason = str(error)
        else:
            register(build.namespace, definition, made.saved)
            return build.namespace
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(
            f"lltm.cells computes {definition.name} step by step in PyTorch, several times slower "
            f"than compiled: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


@dataclass(frozen=True)
class CellBuild:
    """The build of one functor for this torch and this processor.

    Attributes:
        title: the cell's name.
        made: its functor.
        directory: its folder in the cache, with all that the library depends on in its name.
    """

    title: str
    made: Functor
    directory: Path

    @staticmethod
    def of(definition: Definition, made: Functor) -> CellBuild:
        """In the cache of :mod:`lltm.jit`; Pythons that have the same torch share it."""
        key = "\n".join(
            (
                *(made.text, torch.__version__, jit.processor(), *_compile.compiler()),
                *(hash_of_sources(jit.source_directory()), *_compile.FLAGS),
            )
        )
        name = f"lltm_cells_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        return CellBuild(definition.name, made, jit.cache_directory() / name)

    @property
    def namespace(self) -> str:
        """Of the ops."""
        return f"lltm_cell_{self.made.digest}"

    @property
    def cache(self) -> Cache:
        """What is noted of the build."""
        return Cache(self.directory, f"{self.namespace}.so", jit.source_directory())

    def finished_library(self) -> Path:
        """The library, compiled if it is not there whole.

        Raises:
            CompileError: a compiler failed, or there is no folder to write to.
        """
        cache = self.cache
        library = self.directory / cache.library
        if cache.is_finished():
            return library
        try:
            lock = jit.acquire(self.directory, "lltm.cells")
        except OSError as error:
            raise _compile.CompileError(
                f"{self.directory} cannot be written ({error}); name another folder in "
                f"TORCH_EXTENSIONS_DIR"
            ) from None
        try:
            if not cache.is_finished():  # by whom the lock was held
                self._compile(library)
                with contextlib.suppress(OSError):  # a full disk: the next process compiles again
                    cache.note()
        finally:
            lock.release()
        return library

    def _compile(self, library: Path) -> None:
        _report(f"compiling {self.title} for this processor, once; takes about ten seconds")
        start = time.perf_counter()
        header = self.directory / HEADER
        header.write_text(self.made.text, encoding="utf-8")
        flags = [*functor_flags(self.made, self.namespace, header), *jit.kernel_flags()]
        csrc = jit.source_directory()
        sources = [csrc / name for name in (BINDING, *jit.kernel_sources())]
        with jit.watched():
            _compile.Library(library, sources, flags, jit.exports()).compile()
        _report(f"{self.title} is ready after {time.perf_counter() - start:.1f} s")


def functor_flags(made: Functor, namespace: str, header: Path) -> list[str]:
    """What makes the engine of any cell that of one."""
    return [
        f"-DLLTM_NAMESPACE={namespace}",
        f"-DLLTM_CELL={made.struct}",
        f'-DLLTM_CELL_HEADER="{header}"',
    ]
