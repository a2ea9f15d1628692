"""What this machine has: a processor, interpreters, compilers, nvcc, a GPU. Never downloaded."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import findpython
from findpython.providers.path import PathProvider

from torchproof.config import HOME, HOST, number, series
from torchproof.errors import TorchproofError
from torchproof.machine import processor
from torchproof.machine.processor import Processor

COMPILER_PROGRAM = re.compile(r"(g\+\+|clang\+\+)(-\d+)?")


@dataclass(frozen=True)
class Emulation:
    """What an interpreter runs on that is not for this processor.

    Attributes:
        platform: that it is for.
        emulator: its name and version, "qemu-user 10.0.13".
        run: a script that runs a program under it: `run NAME PROGRAM ARGUMENTS`.
        compilers: a folder with g++ and gcc for that platform; None where it is the machine's own.
    """

    platform: str
    emulator: str
    run: Path
    compilers: Path | None = None


@dataclass(frozen=True)
class Interpreter:
    """A CPython and its full version, "3.14.7"; a free-threaded one has a "t" at the end.

    `system` is a name of matrix.toml's `systems` where it does not start on this machine's own.
    """

    path: Path
    version: str
    system: str = HOST
    emulation: Emulation | None = None


@dataclass(frozen=True)
class CompilerFound:
    """A C++ compiler on PATH with the C compiler of the same installation."""

    name: str
    version: str
    path: Path

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.split(".")[0])

    @property
    def label(self) -> str:
        """How rows name it: g++-12."""
        return f"{self.name}-{self.major}"

    @property
    def c_compiler(self) -> Path:
        """The C compiler beside it: gcc-12 for g++-12, clang for clang++."""
        name = self.path.name.replace("clang++", "clang").replace("g++", "gcc")
        return self.path.with_name(name)


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler: its release, "13.0", full version and the toolkit it belongs to."""

    release: str
    version: str
    root: Path

    @property
    def program(self) -> Path:
        """The compiler itself, past a wrapper on PATH."""
        return self.root / "bin" / "nvcc"


@dataclass(frozen=True)
class Machine:
    """The programs found, and what they run on; `emulated`: the same of what QEMU emulates here."""

    running: Interpreter
    pythons: tuple[Interpreter, ...]
    compilers: tuple[CompilerFound, ...]
    default: CompilerFound | None
    gpu: bool
    platform: str = HOME
    nvcc: Nvcc | None = None
    processor: Processor = field(default_factory=processor.read)
    of_systems: tuple[Interpreter, ...] = ()
    emulated: tuple["Machine", ...] = ()

    def python(self, name: str, system: str = HOST) -> Interpreter | None:
        """The CPython of a series, "3.12" or "3.14t", or None: the running one, else the newest."""
        return self.python_among((name,), system)

    def python_among(self, names: Collection[str], system: str = HOST) -> Interpreter | None:
        """The running CPython where it is of one of these series, else the newest that is."""
        here = (self.running, *self.pythons)
        found = (p for p in (*here, *self.of_systems) if p.system == system)
        return next((p for p in found if series(p.version) in names), None)

    def emulating(self, platform: str) -> "Machine | None":
        """The machine of a platform that QEMU emulates here; None where it has nothing of it."""
        return next((each for each in self.emulated if each.platform == platform), None)


def find_pythons() -> tuple[Interpreter, ...]:
    """Released CPythons of the system, PATH, pyenv and `torchproof interpreters`, newest first.

    Each version once; of a version with and without a GIL, both.
    """
    # Each program is started three times: not under every one of its names, nor pyenv's scripts.
    finder = findpython.Finder(no_same_file=True)
    finder.add_provider(PathProvider(sorted(interpreters_folder().glob("*/bin"))))
    return _newest_first(finder, HOST)


def find_pythons_of_systems() -> tuple[Interpreter, ...]:
    """Every CPython that `torchproof interpreters` has put on another system."""
    found: list[Interpreter] = []
    for folder in sorted((cache_folder() / "systems").glob("*/bin")):
        finder = findpython.Finder(no_same_file=True, selected_providers=[])
        finder.add_provider(PathProvider([folder]))
        found += _newest_first(finder, folder.parent.name)
    return tuple(found)


def _newest_first(finder: findpython.Finder, system: str) -> tuple[Interpreter, ...]:
    found: dict[str, Interpreter] = {}
    for python in finder.find_all(allow_prereleases=False):
        if python.implementation.lower() == "cpython":
            version = f"{python.version}{'t' if python.freethreaded else ''}"
            found.setdefault(version, Interpreter(Path(python.executable), version, system))
    return tuple(sorted(found.values(), key=lambda p: number(p.version), reverse=True))


def interpreters_folder() -> Path:
    """Where `torchproof interpreters` puts the CPythons it fetches, a folder each."""
    return cache_folder() / "interpreters"


def cache_folder() -> Path:
    """Where the tool keeps what it fetches for the user."""
    cache = os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache"
    return Path(cache) / "torchproof"


def home_folder() -> Path:
    """The user's own.

    Raises:
        TorchproofError: they have none.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise TorchproofError(
            "HOME is not set, and this user has no home directory: set HOME to a folder that they "
            "may write"
        ) from None


def find_program(name: str) -> str | None:
    """A program on PATH or, as a package that this tool depends on brings it, beside this tool."""
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def running_python() -> Interpreter:
    """The interpreter this process runs on, outside its virtual environment."""
    base = Path(getattr(sys, "_base_executable", sys.executable))
    version = ".".join(str(part) for part in sys.version_info[:3])
    freethreaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return Interpreter(base, f"{version}t" if freethreaded else version)


def inspect_compiler(path: Path) -> CompilerFound | None:
    """Ask a program for its version; None when it is not a g++ or clang++ that answers."""
    try:
        output = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    first = output.partition("\n")[0]
    numbers = re.findall(r"\d+\.\d+\.\d+", first)
    if not numbers:
        return None
    if "clang" in first.lower():
        return CompilerFound("clang++", numbers[0], path)
    # "g++ (Debian 12.2.0-14) 12.2.0": the package's version in brackets, the compiler's last.
    return CompilerFound("g++", numbers[-1], path)


def find_compilers() -> tuple[CompilerFound, ...]:
    """Every g++ and clang++ on PATH, one a major; a plain name wins over a numbered one."""
    found: dict[str, CompilerFound] = {}
    for folder in os.get_exec_path():
        for path in sorted(Path(folder).glob("*++*")):
            if COMPILER_PROGRAM.fullmatch(path.name) and os.access(path, os.X_OK):
                compiler = inspect_compiler(path)
                if compiler is not None:
                    found.setdefault(compiler.label, compiler)
    return tuple(sorted(found.values(), key=lambda c: (c.name != "g++", c.major)))


def default_compiler() -> CompilerFound | None:
    """The machine's `g++`."""
    path = shutil.which("g++")
    return inspect_compiler(Path(path)) if path else None


def find_nvcc() -> Nvcc | None:
    """The nvcc of CUDA_HOME or PATH, asked where its toolkit lies: PATH may hold a wrapper."""
    home = os.environ.get("CUDA_HOME")
    program = shutil.which("nvcc", path=f"{home}/bin" if home else None)
    if program is None:
        return None
    completed = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    plan = subprocess.run(
        [program, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    version = re.search(r"V(\d+\.\d+\.\d+)", completed.stdout)
    top = re.search(r"^#\$ TOP=(.+)$", plan.stderr, re.MULTILINE)
    if version is None or top is None:
        return None
    return Nvcc(series(version[1]), version[1], Path(top[1]).resolve())


def this_platform() -> str:
    """The platform as `matrix.toml` names it: linux-x86_64, macos-arm64, windows-x86_64."""
    system = {"Darwin": "macos"}.get(platform.system(), platform.system().lower())
    machine = platform.machine().lower()
    return f"{system}-{'x86_64' if machine == 'amd64' else machine}"


def this_machine() -> Machine:
    """Look around; what takes time is that each program is started and asked."""
    home_folder()  # where findpython looks, whatever XDG_CACHE_HOME says
    with ThreadPoolExecutor() as pool:
        pythons, compilers = pool.submit(find_pythons), pool.submit(find_compilers)
        default, nvcc = default_compiler(), find_nvcc()
    # The default one first: the order of rows, and of the report, follows it.
    ordered = [c for c in compilers.result() if default and c.label == default.label]
    ordered += [c for c in compilers.result() if c not in ordered]
    return Machine(
        running=running_python(),
        pythons=pythons.result(),
        compilers=tuple(ordered),
        default=default,
        platform=this_platform(),
        gpu=shutil.which("nvidia-smi") is not None,
        nvcc=nvcc,
        of_systems=find_pythons_of_systems(),
    )
