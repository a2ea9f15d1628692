"""The shared library that carries the ops, and build.json, which says what it is."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from setuptools import Extension
from torch.utils import cpp_extension

from build_support import cells, cuda
from build_support.lock import only_build
from build_support.variant import (
    BINDING,
    CELLS,
    CUDA,
    DEBUG,
    PACKAGER,
    TORCH_TARGET,
    package_version,
    torch_series,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).absolute().parent.parent
X86 = platform.machine().lower() in ("x86_64", "amd64")
ARM = platform.machine().lower() in ("aarch64", "arm64")
WINDOWS = sys.platform == "win32"
# As lltm._library.NAMES has them.
LIBRARIES = {"linux": "liblltm.so", "darwin": "liblltm.dylib", "win32": "lltm.dll"}
LIBRARY = LIBRARIES.get(sys.platform, LIBRARIES["linux"])
# As lltm._library.CELLS_NAMES has them.
CELLS_LIBRARIES = {name: file.replace("lltm", "lltm_cells", 1) for name, file in LIBRARIES.items()}
CELLS_LIBRARY = CELLS_LIBRARIES.get(sys.platform, CELLS_LIBRARIES["linux"])
# As lltm._library.CUDA_NAME has it.
CUDA_LIBRARY = "liblltm_cuda.so"
COMPILED_SETS = ["baseline", *(["avx2", "avx512"] if X86 else [])]
# Those of the processors that multiply bfloat16 in tiles are in the file of the strongest.
_TILED = ["avx512_bf16", "amx"] if X86 else ["neon_bf16"] if ARM else []
TILED_SETS = _TILED if sys.platform == "linux" else []
INSTRUCTION_SETS = [*COMPILED_SETS, *TILED_SETS]

BINDING_SOURCES = {
    "stable": ["csrc/stable/binding.cpp"],
    "native": ["csrc/native/binding.cpp"],
}
# Of every library, with CUDA kernels or without.
COMMON_SOURCES = ["csrc/host/single_threaded.cpp"]
KERNELS = [*(f"kernels_{name}.cpp" for name in reversed(COMPILED_SETS)), "kernels.cpp"]
TILES = ["csrc/cpu/amx.cpp", "csrc/cpu/bf16_dot.cpp"] if TILED_SETS else []
CPU_SOURCES = [*(f"csrc/cpu/{name}" for name in KERNELS), *TILES]


def numbers(series: str) -> tuple[int, int]:
    """``2.10`` as what can be compared: ``(2, 10)``."""
    major, minor = map(int, series.split("."))
    return major, minor


def target_macro(version: str) -> str:
    """``2.10`` as torch spells a version in TORCH_TARGET_VERSION: a byte each, from the top."""
    major, minor = numbers(version)
    return f"0x{major:02x}{minor:02x}000000000000"


def compile_arguments(*, windows: bool = WINDOWS) -> list[str]:
    """Flags for every source; those of Windows are clang-cl's."""
    target, standard = [], []
    if BINDING == "stable":
        target = [f"-DTORCH_TARGET_VERSION={target_macro(TORCH_TARGET)}"]
        standard = ["c++17"]
    # __FILE__ is in the error messages: without a map they would name the folder of the build.
    maps = {ROOT: "lltm", Path(torch.__file__).parent: "torch"}
    paths = [f"-ffile-prefix-map={folder}={name}" for folder, name in maps.items()]
    if windows:
        return [
            "/Od" if DEBUG else "/O2",
            "/EHsc",
            "-DNOMINMAX",
            *(f"/std:{name}" for name in standard),
            *(f"/clang:{path}" for path in paths),
            *target,
        ]
    return [
        *(["-O0", "-g"] if DEBUG else ["-O2", "-g0"]),
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Wno-psabi",
        *(f"-std={name}" for name in standard),
        *paths,
        *target,
    ]


def link_arguments() -> list[str]:
    """Flags for a hard and tidy library: nothing exported, nothing both writable and executable."""
    if WINDOWS:
        # link.exe does not know clang's own library, which __builtin_cpu_supports() lives in.
        asked = [os.environ["CXX"], "/clang:--print-runtime-dir"]
        runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        return ["/Brepro", f"/LIBPATH:{runtime}", "clang_rt.builtins-x86_64.lib"]
    if sys.platform == "darwin":
        return ["-Wl,-dead_strip", *([] if DEBUG else ["-Wl,-x"])]
    script = ROOT / "csrc" / "exports.map"
    return [
        *("-Xlinker", f"--version-script={script}"),  # -Wl would split the path at a comma
        "-Wl,-z,relro,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,--as-needed",
        "-Wl,--no-undefined",
        "-ldl",  # before glibc 2.34: torch's headers look functions up, from 2.15 on
        *([] if DEBUG else ["-Wl,--strip-all"]),
    ]


def libraries() -> list[Extension]:
    """What is compiled."""
    more = [cells_library()] if CELLS else []
    return [library(), *more, *([cuda_library()] if CUDA else [])]


def _extension(
    name: str,
    sources: list[str],
    *,
    libraries: Sequence[str] = (),
    compile_more: Sequence[str] = (),
    link_more: Sequence[str] = (),
) -> Extension:
    """A library of ours; what all have is added to what is given."""
    return Extension(
        f"lltm.lib.{name}",
        sources=[*sources, *COMMON_SOURCES],
        include_dirs=cpp_extension.include_paths(),
        library_dirs=cpp_extension.library_paths(),
        libraries=[*libraries, "torch_cpu", "c10"],
        extra_compile_args={"cxx": [*compile_arguments(), *compile_more]},
        extra_link_args=[*link_arguments(), *link_more],
        language="c++",
    )


def library() -> Extension:
    """The library with the schemas and the CPU kernels; it holds no Python."""
    # Its cell's ops of lltm.cells are the stable binding's alone.
    lltm_cell = [f"-DLLTM_NAMESPACE={cells.LLTM.namespace}"] if BINDING == "stable" else []
    first, *others = CPU_SOURCES
    sources = [first, *BINDING_SOURCES[BINDING], *others]
    return _extension("liblltm", sources, compile_more=lltm_cell)


def cells_library() -> Extension:
    """The library with other cells' ops and CPU kernels; lltm.cells loads it for the first of them.

    One of its own, so that `import lltm` maps no more than it uses. Its other sources are written
    when it is built.
    """
    if BINDING != "stable":
        raise SystemExit("LLTM_CELLS=1 builds on torch's stable ABI; leave out LLTM_BINDING=native")
    return _extension("liblltm_cells", TILES)


def cuda_library() -> Extension:
    """The library with the CUDA kernels.

    One of its own, because it needs libtorch_cuda, and the other one must load beside a torch
    without CUDA, too; lltm loads this one where torch has CUDA.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("LLTM_CUDA=1 builds on Linux only; leave it out here")
    cuda.images()  # or a wrong list would be refused after the library for the CPU
    binding, runtime = f"csrc/{BINDING}/cuda_binding.cpp", cuda.static_runtime()
    return _extension("liblltm_cuda", [binding], libraries=["torch_cuda"], link_more=runtime)


def check_jobs() -> None:
    """One compiler a core, unless MAX_JOBS says otherwise.

    ninja starts one more, and of two cores that takes a tenth longer. Of 0 it starts all at once.
    """
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
    if not re.fullmatch("0*[1-9][0-9]*", jobs):
        raise SystemExit(
            f"MAX_JOBS must be how many compilers run at a time, 1 or more, got {jobs!r}"
        )
    os.environ["MAX_JOBS"] = jobs


def check_torch() -> None:
    """A stable build has a torch with the stable ABI, or each source fails on many lines."""
    if BINDING == "stable" and numbers(torch_series()) < numbers(TORCH_TARGET):
        raise SystemExit(
            f"lltm's stable library is built on torch {TORCH_TARGET} or newer, and "
            f"{sys.executable} has {torch.__version__}; run `pip install 'torch>={TORCH_TARGET}'` "
            "there first, or build for this torch alone with LLTM_BINDING=native"
        )


def compiler_command() -> list[str]:
    """The C++ compiler as torch runs it: from 2.13 on one program, before which it puts ccache."""
    command = cpp_extension.get_cxx_compiler()
    whole = numbers(torch_series()) >= (2, 13)
    return [command] if whole else command.split()


def check_compiler() -> None:
    """CXX names a program that runs, or torch and ninja would say so on a hundred lines."""
    named = cpp_extension.get_cxx_compiler()
    for command in (compiler_command(), named.split()):  # setuptools, which links, splits it
        try:
            subprocess.run([*command, "--version"], stdout=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(
                f"there is no C++ compiler {named!r} that runs ({error}); install one, such as "
                "with `apt install g++`, or name one in CXX: one program, without arguments, its "
                "path without spaces"
            ) from None


def compiler() -> str:
    """Name and version of the C++ compiler, such as ``g++ 12.2.0``."""
    command = [*compiler_command(), "--version"]
    banner = subprocess.run(command, capture_output=True, text=True, check=True)
    line = banner.stdout.splitlines()[0]
    name = "clang++" if "clang" in line else "g++"
    version = re.search(r"\d+\.\d+\.\d+", line)
    return f"{name} {version.group() if version else 'unknown'}"


def cxx_standard() -> str:
    """The standard the binding is compiled to: ours for stable, torch's own for native."""
    if BINDING == "stable":
        return "c++17"
    found = re.search(r"-std=(c\+\+\d+)", Path(cpp_extension.__file__).read_text(encoding="utf-8"))
    return found.group(1) if found else "unknown"


def in_order_of(
    first: list[str], compile_sources: Callable[..., list[str]]
) -> Callable[..., list[str]]:
    """Compile in the order the sources are declared in, which setuptools sorts by name.

    The strongest kernels and the binding take longest and are declared first: with two cores, one
    that is begun last leaves a core idle for a third of the build.
    """

    def compile_in_order(sources: list[str], *args: object, **kwargs: object) -> list[str]:
        return compile_sources(sorted(sources, key=first.index), *args, **kwargs)

    return compile_in_order


class Build(cpp_extension.BuildExtension):
    """BuildExtension for a library that is not a Python module."""

    build_temp: str

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs, no_python_abi_suffix=True, use_ninja=True)

    def finalize_options(self) -> None:
        """Build beside a newer library, too: setuptools knows no header and no variable of ours.

        With ninja, which knows both, torch does so by itself.
        """
        super().finalize_options()
        self.force = True
        # ninja compares dates, and of a torch that another has replaced they may well be older.
        self.build_temp = str(Path(self.build_temp) / f"torch-{torch.__version__}")

    def get_ext_filename(self, ext_name: str) -> str:
        """The platform's name for a shared library, not for a Python module."""
        kind = ext_name.rpartition("_")[2]
        name = {"cuda": CUDA_LIBRARY, "cells": CELLS_LIBRARY}.get(kind, LIBRARY)
        return str(Path(*ext_name.split(".")).with_name(name))

    def build_extension(self, ext: Extension) -> None:
        """The CUDA kernels are compiled here: BuildExtension would want a CUDA build of torch."""
        jobs = os.environ["MAX_JOBS"]
        if ext.name.endswith("_cuda"):
            build = Path(self.build_temp) / "cuda"
            maps = [flag for flag in compile_arguments() if flag.startswith("-ffile-prefix-map")]
            ext.extra_objects = cuda.compile_kernels(build, maps, threads=int(jobs))
            stub = cuda.link_stub(build, compiler_command())
            ext.library_dirs = [stub, *ext.library_dirs]
        if ext.name.endswith("_cells"):
            kernels = [f"cpu/{name}" for name in KERNELS]
            written = cells.write_sources(Path(self.build_temp).absolute() / "cells", kernels)
            ext.sources = [*written, *ext.sources]
        compile_sources = self.compiler.compile
        self.compiler.compile = in_order_of(ext.sources, compile_sources)
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_sources

    def get_libraries(self, ext: Extension) -> list[str]:
        """Only the extension's own: libpython is not wanted, whatever this CPython would add."""
        return list(ext.libraries)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """None: there is no module initialiser."""
        return []

    def run(self) -> None:
        """Build, then describe the library beside it."""
        check_jobs()
        check_torch()
        check_compiler()
        with only_build():
            self._run()

    def _run(self) -> None:
        if self.inplace:  # the sources have no folder for it
            for ext in self.extensions:
                Path(self.get_ext_fullpath(ext.name)).parent.mkdir(exist_ok=True)
        super().run()
        for ext in self.extensions:
            path = Path(self.get_ext_fullpath(ext.name))
            path.with_name("build.json").write_text(describe(path.parent), encoding="utf-8")


def describe(folder: Path) -> str:
    """``build.json`` for the libraries in a folder; its fields are those of ``lltm._build.Build``.

    The sizes and hashes let ``import lltm`` refuse a truncated library, which would end the process
    that maps it. A packager may change a library after this, so that none is noted for one.
    """
    names = [LIBRARY, *([CELLS_LIBRARY] if CELLS else []), *([CUDA_LIBRARY] if CUDA else [])]
    contents = {} if PACKAGER else {name: (folder / name).read_bytes() for name in names}
    fields = {
        "version": package_version(),
        "binding": BINDING,
        "torch": torch.__version__.split("+")[0],
        "torch_target": TORCH_TARGET if BINDING == "stable" else None,
        "compiler": compiler(),
        "cxx_standard": cxx_standard(),
        "instruction_sets": INSTRUCTION_SETS,
        "cells": {name: cell.namespace for name, cell in cells.carried().items() if CELLS},
        "cuda": cuda.release() if CUDA else None,
        "cuda_architectures": cuda.images() if CUDA else [],
        "driver": cuda.driver() if CUDA else None,
        "platform": f"{sys.platform}-{platform.machine().lower()}",
        "debug": DEBUG,
        "libraries": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in contents.items()
        },
    }
    return json.dumps(fields, indent=2) + "\n"


if not os.environ.get("CXX", "").strip():
    os.environ.pop("CXX", None)  # torch would run a compiler without a name
if WINDOWS:
    # The kernels are written in the vectors that GCC and Clang share; cl.exe has none.
    os.environ.setdefault("CXX", "clang-cl")
