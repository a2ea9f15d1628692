"""Compile C++ into a plain shared library against torch's stable ABI, with a compiler alone."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from lltm import _jit_watch, _library

STABLE_SINCE = (2, 10)
"""The torch whose stable ABI the libraries are compiled to: they run on it and on newer ones."""
FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",
    f"-DTORCH_TARGET_VERSION=0x{STABLE_SINCE[0]:02x}{STABLE_SINCE[1]:02x}000000000000",
)
LINKER_SUMMARY = re.compile(r"ld returned|linker command failed")
"""In the line that a compiler adds to the linker's own reason."""
LAUNCHERS = ("ccache", "distcc", "icecc", "sccache")
"""Programs that stand before a compiler in CXX, and start it."""


class CompileError(RuntimeError):
    """A compiler failed; the message is its own."""

    def first(self) -> str:
        """The line with the first error, of what may be thousands."""
        lines = str(self).splitlines()
        reasons = [line for line in lines[1:] if not LINKER_SUMMARY.search(line)] or lines
        return next((line for line in reasons if "error" in line.lower()), reasons[-1]).strip()


@dataclass(frozen=True)
class Library:
    """What to compile.

    Attributes:
        path: where the library goes; objects are made beside it, and removed.
        sources: files of C++, and of CUDA.
        flags: beside :data:`FLAGS`, of the compiler.
        link_flags: of the linker.
        nvcc: its command for a file of CUDA, without the file.
    """

    path: Path
    sources: Sequence[Path]
    flags: Sequence[str]
    link_flags: Sequence[str] = ()
    nvcc: Sequence[str] = ()

    def compile(self) -> None:
        """Compile the sources, as many at a time as there are cores, and link.

        Raises:
            CompileError: a compiler failed.
        """
        objects = [self.path.with_name(f"{source.stem}.o") for source in self.sources]
        torchs = cpp_extension()
        include = [f"-I{path}" for path in torchs.include_paths()]
        host = [*compiler(), *FLAGS, *self.flags, *include]
        commands = [
            [*(self.nvcc if source.suffix == ".cu" else host), "-c", str(source), "-o", str(made)]
            for source, made in zip(self.sources, objects, strict=True)
        ]
        linked = self.path.with_name(f"{self.path.name}.new")
        link = [*compiler(), "-shared", *map(str, objects), "-o", str(linked)]
        link += [f"-L{path}" for path in torchs.library_paths()]
        try:
            # In this order: once one has failed, or at Ctrl-C, nobody waits for the others.
            with (
                ThreadPoolExecutor(os.cpu_count()) as workers,
                watched() as environment,
                contextlib.closing(_Starter(environment)) as starter,
            ):
                list(workers.map(starter.run, commands, objects))
                link += ["-ltorch_cpu", "-lc10", *self.link_flags]
                workers.submit(starter.run, link, linked).result()
            linked.replace(self.path)
        finally:
            for made in (*objects, linked):
                made.unlink(missing_ok=True)


def cpp_extension() -> ModuleType:
    """What torch builds extensions with: slow to import, and wanted only where one is built."""
    from torch.utils import cpp_extension  # noqa: PLC0415 - slow to import

    return cpp_extension


@contextlib.contextmanager
def watched() -> Iterator[dict[str, str]]:
    """The environment for what ends with this process, or when the block is left, at the latest."""
    with _mark() as mark:
        yield {**os.environ, _jit_watch.VARIABLE: mark}


@contextlib.contextmanager
def watched_in(folder: Path) -> Iterator[None]:
    """As :func:`watched`, for what can be given no environment: whatever starts in a folder.

    What other threads start meanwhile gets this process's environment, too; it starts elsewhere.
    """
    with _mark(os.path.realpath(folder)) as mark:
        os.environ[_jit_watch.VARIABLE] = mark
        try:
            yield
        finally:
            del os.environ[_jit_watch.VARIABLE]


@contextlib.contextmanager
def _mark(folder: str = "") -> Iterator[str]:
    """For the environment of what ends with a build, of a folder alone where one is named."""
    mark = f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    if sys.platform != "linux" or not sys.executable:
        yield mark
        return
    command = [sys.executable, "-I", "-S", _jit_watch.__file__, mark, folder]
    # A session of its own: the Ctrl-C that ends the build is not meant for it.
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield mark
    finally:
        # Not the end of the pipe alone: what another thread has forked holds that open.
        watch.communicate(b"\n")


class _Starter:
    """Runs compilers until it is closed: one that a thread starts later would outlive the build."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Start no other."""
        with self._lock:
            self._closed = True

    def run(self, command: Sequence[str], made: Path) -> None:
        """Run a compiler, which makes a file, to its end.

        Raises:
            CompileError: it failed, made no file, or was not started.
        """
        with self._start(command) as process:
            output, _ = process.communicate()
        if process.returncode:
            silent = f"{command[0]} printed nothing, and ended with {_status(process.returncode)}"
            raise CompileError(f"{shlex.join(command)} failed:\n{output.strip() or silent}")
        if not made.exists():
            missing = f"{command[0]} ended with exit status 0 and made no {made.name}"
            raise CompileError(f"{shlex.join(command)} failed:\n{missing}")

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise CompileError(f"{command[0]} was not started: the build has ended")
            try:
                return subprocess.Popen(
                    command,
                    env=self._environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                raise CompileError(f"{command[0]} cannot be started: {error.strerror}") from None


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def compiler() -> list[str]:
    """The C++ compiler, with what may stand before or after it: ``CXX="ccache g++"``.

    Raises:
        CompileError: CXX cannot be split into words.
    """
    named = os.environ.get("CXX", "")
    try:
        return shlex.split(named) or ["c++"]
    except ValueError as error:
        raise CompileError(
            f"CXX must name a C++ compiler, such as g++, got {named!r}: {error}"
        ) from None


def without_launcher() -> str:
    """The C++ compiler alone, for a program that starts it by itself.

    Raises:
        CompileError: CXX cannot be split into words.
    """
    words = compiler()
    return next((word for word in words if Path(word).name not in LAUNCHERS), words[0])


def unavailable_reason() -> str | None:
    """Why nothing can be compiled here and what to do, or ``None``."""
    if _library.release(torch.__version__) < STABLE_SINCE:
        needed = ".".join(map(str, STABLE_SINCE))
        return f"torch {torch.__version__} has no stable ABI; install torch {needed} or newer"
    if sys.platform == "win32":
        return "kernels are compiled on Linux and macOS only"
    try:
        command = compiler()
    except CompileError as error:
        return str(error)
    if shutil.which(command[0]) is None:
        return (
            f"there is no C++ compiler ({shlex.join(command)}); install one, such as with "
            f"`apt install g++`, `dnf install gcc-c++` or `conda install gxx`, or name it in CXX"
        )
    return None
