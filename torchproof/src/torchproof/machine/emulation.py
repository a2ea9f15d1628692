"""Other platforms and processors, emulated here by qemu-user.

A platform's folder in the user's cache holds QEMU's program, CPythons with the C library they were
built on, and a compiler for it. What starts a CPython is a script in the place of its program, so
that a virtual environment, pip, and a test that starts a Python of its own get it unawares.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchproof.config import Emulator, Matrix, series
from torchproof.files import replaced
from torchproof.machine import debian
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import (
    Emulation,
    Interpreter,
    Machine,
    cache_folder,
    inspect_compiler,
    this_platform,
)
from torchproof.machine.levels import CPU

# The oldest release whose QEMU runs torch, and the one whose compiler is taken.
QEMU_SUITE = "trixie"
COMPILER_SUITE = "bookworm"
VERSION = "version"
ELF = b"\x7fELF"
RUN = """#!/bin/sh
name=$1 program=$2
shift 2
exec {qemu} -L {prefix} -cpu "${{{variable}:-{cpu}}}" -0 "$name" "$program" "$@"
"""
PROGRAM = """#!/bin/sh
exec {run} "$0" {program} "$@"
"""
COMPILER = """#!/bin/sh
LD_LIBRARY_PATH={libraries} exec {program} --sysroot={root} "$@"
"""


@dataclass(frozen=True)
class EmulatedPlatform:
    """Where what emulates a platform on a host is."""

    emulator: Emulator
    host: str

    @property
    def folder(self) -> Path:
        """All of it."""
        return cache_folder() / "emulated" / self.emulator.platform

    @property
    def qemu(self) -> Path:
        """QEMU's program."""
        return self.folder / self.emulator.program

    @property
    def compilers(self) -> Path:
        """A folder with g++ and gcc, which run here and compile for it."""
        return self.folder / "compilers"

    @property
    def foreign(self) -> bool:
        """Whether this machine's own compilers do not compile for it."""
        return self.emulator.platform != self.host


def of(matrix: Matrix, platform: str) -> Emulator:
    """What emulates a platform."""
    found = matrix.emulator(platform)
    if found is None:
        names = ", ".join(each.platform for each in matrix.emulators)
        raise NotOffered(f"nothing emulates {platform!r}; what can be emulated is {names}")
    return found


def find(matrix: Matrix, machine: Machine) -> Machine:
    """The machine with those that QEMU emulates on it."""
    places = (EmulatedPlatform(emulator, machine.platform) for emulator in matrix.emulators)
    emulated = (_find(place, machine) for place in places)
    return replace(machine, emulated=tuple(each for each in emulated if each is not None))


def _find(platform: EmulatedPlatform, machine: Machine) -> Machine | None:
    pythons = tuple(_pythons(platform))
    if not pythons:
        return None
    own = inspect_compiler(platform.compilers / "g++") if platform.foreign else machine.default
    return replace(
        machine,
        running=pythons[0],
        pythons=pythons,
        compilers=((own,) if own else ()) if platform.foreign else machine.compilers,
        default=own,
        platform=platform.emulator.platform,
        gpu=False,
        nvcc=None,
        of_systems=(),
    )


def _pythons(platform: EmulatedPlatform) -> Iterator[Interpreter]:
    # The versions are written last: a folder without one is not whole.
    for record in sorted(platform.folder.glob(f"*/{VERSION}")):
        version, emulator = record.read_text(encoding="utf-8").splitlines()
        compilers = platform.compilers if platform.foreign else None
        run = record.with_name("run")
        emulated = Emulation(platform.emulator.platform, emulator, run, compilers)
        program = record.parent / "bin" / f"python{series(version)}"
        yield Interpreter(program, version, emulation=emulated)


def fetch(name: str, emulator: Emulator, scratch: Path) -> Path:
    """The CPython of a series that QEMU runs here, with QEMU and a compiler where they are missing.

    Raises:
        NotOffered: one of them is not to be had.
    """
    platform = EmulatedPlatform(emulator, this_platform())
    platform.folder.mkdir(parents=True, exist_ok=True)
    if not platform.qemu.is_file():
        unpacked = debian.unpack(QEMU_SUITE, ["qemu-user"], scratch / "qemu")
        shutil.move(unpacked / "usr" / "bin" / emulator.program, platform.qemu)
        shutil.rmtree(scratch / "qemu")
    if platform.foreign and not (platform.compilers / "g++").is_file():
        _fetch_compilers(platform, scratch / "compilers")
    with replaced(platform.folder / name):
        return _fetch_cpython(name, platform, scratch / "cpython")


def _fetch_compilers(platform: EmulatedPlatform, scratch: Path) -> None:
    triplet = platform.emulator.triplet
    unpacked = debian.unpack(COMPILER_SUITE, [f"g++-{triplet}"], scratch)
    root = platform.compilers / "root"
    shutil.rmtree(platform.compilers, ignore_errors=True)
    platform.compilers.mkdir(parents=True)
    shutil.move(unpacked, root)
    # Those that the compiler itself runs on here, whatever this platform is called.
    libraries = ":".join(map(str, sorted((root / "usr" / "lib").glob("*-linux-gnu"))))
    for kind in ("gcc", "g++"):  # g++ last: it says that all is there
        program = root / "usr" / "bin" / f"{triplet}-{kind}"
        values = {"libraries": libraries, "program": program, "root": root}
        _write_program(platform.compilers / kind, COMPILER, **values)


def _fetch_cpython(name: str, platform: EmulatedPlatform, scratch: Path) -> Path:
    prefix = platform.folder / name
    program = debian.unpack_cpython(name, platform.emulator, prefix, scratch)
    real = prefix / "program" / program.name
    real.parent.mkdir()
    shutil.move(program, real)
    # QEMU looks below the prefix for the loader, which looks there for the libraries.
    (prefix / "lib" / platform.emulator.loader).symlink_to(
        Path(platform.emulator.triplet) / platform.emulator.loader
    )
    run = prefix / "run"
    values = {"qemu": platform.qemu, "prefix": prefix, "variable": CPU}
    _write_program(run, RUN, cpu=platform.emulator.cpu, **values)
    _write_program(program, PROGRAM, run=run, program=real)
    version = debian.run(program, "-c", "import platform; print(platform.python_version())")
    text = f"{version.strip()}\n{_version(platform.qemu)}\n"
    (prefix / VERSION).write_text(text, encoding="utf-8")
    return program


def _version(qemu: Path) -> str:
    found = re.search(r"version (\S+)", debian.run(qemu, "--version"))
    return f"qemu-user {found[1]}" if found else "qemu-user"


def _write_program(path: Path, text: str, **values: object) -> None:
    quoted = {name: shlex.quote(str(value)) for name, value in values.items()}
    path.write_text(text.format(**quoted), encoding="utf-8")
    path.chmod(0o755)


def wrap(folder: Path, emulation: Emulation) -> None:
    """Put a script in the place of every program of the platform in a folder."""
    real = folder.with_name("program")
    real.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == ELF:
            shutil.move(path, real / path.name)
            _write_program(path, PROGRAM, run=emulation.run, program=real / path.name)
