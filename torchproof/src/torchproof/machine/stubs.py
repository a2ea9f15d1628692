"""Link stubs: a CUDA build of torch imports without a GPU and without the NVIDIA packages.

torch's own libraries name the NVIDIA libraries they need, and the symbols, with versions, they take
from them. A stub is a shared library of that name with those symbols; every function answers "no
device", so torch runs on the CPU. Nothing on a CUDA device is proven this way: such rows say so.

An extension takes more of CUDA's run-time than torch does: the stub of that library has all that
the real one exports.
"""

import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchproof.audit.elf_file import DT_NEEDED, SHN_ABS, SHN_UNDEF, STT_OBJECT, ElfFile

LIBRARY = re.compile(r"lib(cu|nv|nccl)")
SYMBOL = re.compile(r"(cu|nv|nccl|__cuda|CUpti|__nv|_nv)")
# cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE: torch takes it for "no GPU" without a warning.
NO_DEVICE = 100
# Large enough for any data object torch copies from an NVIDIA library.
OBJECT_BYTES = 4096


@dataclass(frozen=True)
class Wanted:
    """A symbol of a stub: the library and version that the one who takes it expects, when named."""

    name: str
    is_data: bool
    library: str
    version: str


@dataclass(frozen=True)
class Library:
    """What one shared library of torch needs and gives."""

    name: str
    needed: tuple[str, ...]
    wanted: tuple[Wanted, ...]
    defined: frozenset[str]


def read(path: Path) -> Library:
    """Read a shared library's needs."""
    with path.open("rb") as stream:
        file = ElfFile(stream)
        origins = file.version_needs()
        wanted, defined = [], set()
        for symbol in file.symbols:
            if symbol.section != SHN_UNDEF:
                defined.add(symbol.name)
            elif symbol.name:
                library, version = origins.get(symbol.version, ("", ""))
                wanted.append(Wanted(symbol.name, symbol.kind == STT_OBJECT, library, version))
        return Library(path.name, file.texts(DT_NEEDED), tuple(wanted), frozenset(defined))


def exports(path: Path) -> set[Wanted]:
    """All that a shared library gives."""
    with path.open("rb") as stream:
        file = ElfFile(stream)
        versions = file.version_definitions()
        # An absolute symbol is the name of a version.
        return {
            Wanted(entry.name, entry.kind == STT_OBJECT, path.name, versions.get(entry.version, ""))
            for entry in file.symbols
            if entry.name and entry.section not in {SHN_UNDEF, SHN_ABS}
        }


def missing(libraries: Iterable[Library]) -> dict[str, set[Wanted]]:
    """The NVIDIA libraries that are not there, and what is wanted of each."""
    libraries = tuple(libraries)
    present = {library.name for library in libraries}
    defined = frozenset().union(*(library.defined for library in libraries))
    absent = Counter(
        name
        for library in libraries
        for name in library.needed
        if name not in present and LIBRARY.match(name)
    )
    stubs: dict[str, set[Wanted]] = {name: set() for name in absent}
    if not stubs:
        return stubs
    # The loader takes an unversioned symbol from any library in reach: the stub that most libraries
    # name carries them all (not every torch reaches libnvrtc on the way of `import torch`).
    anywhere = absent.most_common(1)[0][0]
    for library in libraries:
        for symbol in library.wanted:
            if symbol.library in stubs:
                stubs[symbol.library].add(symbol)
            elif not symbol.version and symbol.name not in defined and SYMBOL.match(symbol.name):
                stubs[anywhere].add(symbol)
    return stubs


def source(wanted: Iterable[Wanted]) -> str:
    """The C source of a stub."""
    kinds = {symbol.name: symbol.is_data for symbol in wanted}
    lines = [
        f"char {name}[{OBJECT_BYTES}];"
        if is_data
        else f"long {name}(void) {{ return {NO_DEVICE}; }}"
        for name, is_data in sorted(kinds.items())
    ]
    return "\n".join(lines) + "\n"


def version_script(wanted: Iterable[Wanted]) -> str:
    """The linker's version script of a stub; empty when no symbol has a version."""
    versions: dict[str, set[str]] = defaultdict(set)
    for symbol in wanted:
        if symbol.version:
            versions[symbol.version].add(symbol.name)
    return "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
        for version, names in sorted(versions.items())
    )


def write(
    site_packages: Path, compiler: str | Path = "gcc", real: Iterable[Path] = ()
) -> tuple[str, ...]:
    """Write the stubs a torch needs beside its own libraries, and return their names.

    Args:
        site_packages: what the torch is in.
        compiler: compiles C for torch's platform.
        real: NVIDIA libraries whose stubs are to have all that these have.
    """
    torch = site_packages / "torch"
    libraries = [read(path) for path in [*torch.glob("lib/*.so*"), *torch.glob("_C*.so")]]
    stubs = missing(libraries)
    for path in real:
        if path.name in stubs:
            stubs[path.name] |= exports(path)
    for name, wanted in stubs.items():
        with tempfile.TemporaryDirectory() as folder:
            code, script = Path(folder, "stub.c"), Path(folder, "versions")
            code.write_text(source(wanted), encoding="utf-8")
            script.write_text(version_script(wanted), encoding="utf-8")
            command = [str(compiler), "-shared", "-fPIC", "-w", "-O0", "-fno-builtin", str(code)]
            command += [f"-Wl,-soname,{name}", "-o", str(torch / "lib" / name)]
            if script.stat().st_size:
                command.append(f"-Wl,--version-script,{script}")
            subprocess.run(command, check=True, capture_output=True)
    return tuple(stubs)
