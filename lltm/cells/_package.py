"""A cell as a wheel: its kernels for every processor, on torch's stable ABI, and its step."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import keyword
import os
import platform
import re
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from lltm import _compile, jit
from lltm._version import __version__
from lltm.cells import _cuda
from lltm.cells._definition import Definition
from lltm.cells._errors import StepError
from lltm.cells._functor import functor
from lltm.cells._kernels import BINDING, HEADER, functor_flags, report

X86 = platform.machine().lower() in ("x86_64", "amd64")
SETS = ("baseline", *(("avx2", "avx512") if X86 else ()))
TILES = jit.TILE_SOURCES if SETS[-1] in jit.SETS_WITH_TILES and sys.platform == "linux" else ()
SOURCES = (
    *(BINDING, "cpu/kernels.cpp", "host/single_threaded.cpp", *TILES),
    *(f"cpu/kernels_{name}.cpp" for name in SETS),
)
LINUX_LINK_FLAGS = (
    *("-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack", "-Wl,--as-needed", "-Wl,--strip-all"),
)
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?")
_VERSION = re.compile(  # in the normal form of PEP 440, without an epoch
    r"N(\.N)*((a|b|rc)N)?(\.postN)?(\.devN)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?".replace(
        "N", "(0|[1-9][0-9]*)"
    )
)
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file in the wheel: the same sources give the same bytes."""

_INIT = '''\
"""The recurrent cell {cell}, with its kernels compiled by lltm {version}."""

from pathlib import Path as _Path

from lltm.cells import attach as _attach

from {package}.step import {name}

cell = _attach({name}{libraries})
{alias}'''
_METADATA = """\
Metadata-Version: 2.1
Name: {distribution}
Version: {release}
Summary: The recurrent cell {cell} with kernels compiled by lltm
Requires-Dist: lltm=={version}
Requires-Dist: torch>={torch}
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: lltm {version}
Root-Is-Purelib: false
Tag: {tag}
"""


class PackageError(ValueError):
    """What was to be built is not there or no cell; the message says which."""


def cell_of(target: str) -> Definition:
    """The cell that ``FILE.py:NAME`` names.

    Raises:
        PackageError: there is no such file, it fails, or no cell of that name is in it.
    """
    file, _, name = target.rpartition(":")
    source = Path(file)
    if not file or not name.isidentifier():
        raise PackageError(f"expected FILE.py:NAME, got {target!r}")
    if not source.is_file():
        raise PackageError(f"there is no file {source}")
    spec = importlib.util.spec_from_file_location("lltm_cell_source", source)
    if spec is None or spec.loader is None:
        raise PackageError(f"{source} must be a Python file, with the suffix .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for what their annotations name
    try:
        spec.loader.exec_module(module)
    except StepError:
        raise
    except (Exception, SystemExit) as error:
        raise PackageError(f"{source} fails: {type(error).__name__}: {error}") from error
    cell = getattr(module, name, None)
    if not isinstance(cell, Definition):
        has = [each for each, value in vars(module).items() if isinstance(value, Definition)]
        raise PackageError(
            f"{name} in {source} must be what lltm.cells.define() returns, got "
            f"{type(cell).__name__}; cells there: {', '.join(has) or 'none'}"
        )
    return cell


def _loaded_beside(source: Path, modules: Iterable[str]) -> list[str]:
    """The modules that lie in the folder of a file, where it is none of installed packages."""
    source = source.resolve()
    if source.parent in (Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")):
        return []
    found = []
    for name in sorted(each for each in modules if "." not in each):
        path = Path(getattr(sys.modules[name], "__file__", None) or source).resolve()
        folder = path.parent.parent if path.name == "__init__.py" else path.parent
        if folder == source.parent and path != source:
            found.append(name)
    return found


def _is_taken(module: str) -> bool:
    others = module in ("lltm", "torch") or module in sys.stdlib_module_names
    return others or keyword.iskeyword(module) or _is_of_another(module)


def _is_of_another(module: str) -> bool:
    """Whether pip would take out an installed package, such as numpy, for this one."""
    try:
        needs = metadata.requires(module) or ()
    except metadata.PackageNotFoundError:
        return False
    return not any(re.match(r"lltm\b", need) for need in needs)


def _check_name(name: str, file: str) -> None:
    if not _NAME.fullmatch(name):
        raise PackageError(
            f"no package can be named after {name} in {file}: expected letters of a to z, digits "
            f"and _, with no _ at either end; give the cell such a name, too"
        )
    if _is_taken(name.lower()):
        raise PackageError(
            f"a package named {name.lower()} cannot be made of {name} in {file}: it would hide "
            f"another, or be hidden; give the cell another name"
        )


@dataclass(frozen=True)
class Package:
    """What is built.

    Attributes:
        source: the file with the cell in it.
        name: the cell's name there.
        cell: the cell.
        release: the wheel's version.
        images: the GPU programs beside the CPU's kernels, such as ``sm_90``.
    """

    source: Path
    name: str
    cell: Definition
    release: str
    images: tuple[str, ...] = ()

    @staticmethod
    def find(target: str, release: str, architectures: str | None = None) -> Package:
        """From ``FILE.py:NAME``, for the processor and, where named, for GPUs: ``9.0;12.0+PTX``.

        Raises:
            PackageError: there is no such file, no cell of that name in it, no such GPU, or no
                package can have that name or version.
        """
        if not _VERSION.fullmatch(release):
            raise PackageError(
                f"--version must be a version as Python's packages have it, such as 1.2.0 or "
                f"1.2.0rc1, got {release!r}"
            )
        before = set(sys.modules)
        cell = cell_of(target)
        file, _, name = target.rpartition(":")
        if beside := _loaded_beside(Path(file), set(sys.modules) - before):
            raise PackageError(
                f"{file} imports {', '.join(beside)} from its own folder, and the wheel holds "
                f"{file} alone; put what the cell needs into it, or install that as a package"
            )
        _check_name(name, file)
        try:
            images = () if architectures is None else _cuda.images(architectures)
        except ValueError as error:
            raise PackageError(f"--cuda: {error}") from None
        return Package(Path(file), name, cell, release, images)

    @property
    def module(self) -> str:
        """What is imported."""
        return self.name.lower()

    @property
    def library(self) -> str:
        """The library's file name."""
        return f"lib{self.module}{'.dylib' if sys.platform == 'darwin' else '.so'}"

    @property
    def libraries(self) -> list[str]:
        """The file names: the library's, and that of the one with the CUDA kernels."""
        return [self.library, *([f"lib{self.module}_cuda.so"] if self.images else [])]

    def build(self, out: Path) -> Path:
        """Compile the library and write the wheel.

        Args:
            out: the folder it goes to; made where it is missing.

        Returns:
            The wheel.

        Raises:
            CompileError: a compiler failed, or there is none.
            PackageError: ``out`` is no folder, or the wheel cannot be written there.
        """
        if out.exists() and not out.is_dir():
            raise PackageError(f"--out must be a folder, {out} is a file")
        if (reason := _compile.unavailable_reason()) is not None:
            raise _compile.CompileError(reason)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="lltm-cell-") as folder:
            compiled = [Path(folder) / name for name in self.libraries]
            kinds = ", ".join((*SETS, *self.images))
            report(f"compiling {self.name} for {kinds}; takes about a minute")
            self._compile(*compiled)
            return _write_wheel(self, out, compiled)

    def _compile(self, library: Path, cuda_library: Path | None = None) -> None:
        csrc, made = jit.source_directory(), functor(self.cell)
        header = library.with_name(HEADER)
        header.write_text(made.text, encoding="utf-8")
        # __FILE__ is in the messages: without a map they would name folders of this machine.
        maps = {csrc: "lltm", library.parent: self.module, Path(torch.__file__).parent: "torch"}
        flags = [
            *functor_flags(made, header),
            *(f"-ffile-prefix-map={folder}={name}" for folder, name in maps.items()),
        ]
        link = [*jit.exports(), *(LINUX_LINK_FLAGS if sys.platform.startswith("linux") else ())]
        if cuda_library is not None:
            _cuda.compile_library(cuda_library, flags, self.images, link)
        _compile.Library(library, [csrc / name for name in SOURCES], flags, link).compile()


def _write_wheel(package: Package, out: Path, libraries: Sequence[Path]) -> Path:
    tag = f"py3-none-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
    module = package.module
    info = f"{module}-{package.release}.dist-info"
    words = {
        "cell": package.cell.name,
        "version": __version__,
        "package": module,
        "name": package.name,
        "libraries": "".join(f', _Path(__file__).with_name("{path.name}")' for path in libraries),
        "alias": f"__all__ = [{', '.join(sorted({repr('cell'), repr(package.name)}))}]\n",
        "distribution": module.replace("_", "-"),
        "release": package.release,
        "torch": ".".join(map(str, _compile.STABLE_SINCE)),
        "tag": tag,
    }
    files = {
        f"{module}/__init__.py": _INIT.format(**words).replace("'", '"').encode(),
        f"{module}/step.py": package.source.read_bytes(),
        **{f"{module}/{path.name}": path.read_bytes() for path in libraries},
        f"{info}/METADATA": _METADATA.format(**words).encode(),
        f"{info}/WHEEL": _WHEEL.format(**words).encode(),
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    path = out / f"{module}-{package.release}-{tag}.whl"
    # Whole or not there: an earlier wheel stays until this one can take its place.
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, content in files.items():
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                wheel.writestr(entry, content)
        half.replace(path)
    except OSError as error:
        raise PackageError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        half.unlink(missing_ok=True)
    return path


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()
