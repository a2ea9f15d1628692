"""Every rule of the audit catches the binary that breaks it, and nothing else does."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from torchproof.audit import RULES, Ceilings, Policy, audit

if TYPE_CHECKING:
    from pathlib import Path

    from torchproof.audit import LibraryReport, Report

    from .conftest import Toolchain

# A stable abi3 module with device code: it gives every rule something to check.
CLEAN = r"""
#include <string>
extern "C" int aoti_torch_library_init_fragment(), torch_call_dispatcher();
extern "C" int aoti_torch_get_current_cuda_stream(), cudaGetLastError(), PyModule_Create2();
extern "C" __attribute__((visibility("default"))) int PyInit_ext() {
  std::string text(static_cast<unsigned>(PyModule_Create2()), 'x');
  return aoti_torch_library_init_fragment() + torch_call_dispatcher() + text.size() +
         aoti_torch_get_current_cuda_stream() + cudaGetLastError();
}
"""
DEFAULT = '__attribute__((visibility("default")))'
NO_PYTHON = CLEAN.replace("PyModule_Create2", "torch_call_dispatcher")
DEVICE_CODE = 'asm(".section .nv_fatbin,\\"a\\"\\n.incbin \\"%s\\"\\n.previous");\n'
CPU_SHIMS = ("aoti_torch_library_init_fragment", "torch_call_dispatcher")
CUDA_SHIMS = ("aoti_torch_get_current_cuda_stream",)
CXX_API = "_ZN3c1014current_deviceEv"
NEW_SHIM = "torch_exception_get_what"  # of torch 2.13
DECLARED = Policy(
    binding="stable",
    target="2.10",
    torch="2.13",
    cuda="13.0",
    cuda_architectures=("8.0", "9.0a+PTX"),
    ceilings=Ceilings(glibc="2.98", glibcxx="3.4.98", cxxabi="1.3.98"),
    debug=True,
)


@dataclass(frozen=True)
class Binary:
    """How a fixture differs from the clean one."""

    breaks: str | None
    source: str = ""  # added to the clean one's
    clean: str = CLEAN
    links: tuple[str, ...] = ()  # more libraries of torch
    flags: tuple[str, ...] = ()
    images: tuple[tuple[int, int, str], ...] = ((2, 80, ""), (2, 90, "a"), (1, 90, "a"))
    comment: str = "GCC: (GNU) 13.3.0"
    cudart: int = 13
    torch_linked: bool = True
    strange: tuple[str, str | None] | None = None  # soname and version of one more library
    version: int | None = None  # of a symbol, in place of that which the linker gave it
    file: str = "ext.abi3.so"
    tag: str = "cp310-abi3-manylinux_2_41_x86_64"
    bundled: str | None = None
    torch: tuple[str, ...] = ("2.13.0", *CPU_SHIMS, NEW_SHIM, CXX_API)
    against: bool = True


def exported(code: str) -> str:
    """A function that only an exported name can call for."""
    return f"static int use() {{ {code} }}\nstatic volatile int used = use();\n"


OF_311 = 'extern "C" int PyType_GetName();\n' + exported("return PyType_GetName();")
LINUX = "cp310-abi3-linux_x86_64"
BINARIES = (
    Binary(None),
    Binary(
        "binding",
        "namespace c10 { int current_device(); }\n" + exported("return c10::current_device();"),
    ),
    # TORCH_TARGET_VERSION forgotten: the headers' newest functions are called.
    Binary(
        "stable-target",
        f'extern "C" int {NEW_SHIM}();\n' + exported(f"return {NEW_SHIM}();"),
    ),
    Binary("torch-linked", torch_linked=False, against=False),
    # A pybind11 module renamed .abi3.so.
    Binary(
        "python-abi3",
        'extern "C" int _PyType_Lookup();\n' + exported("return _PyType_Lookup();"),
    ),
    # Of the tags of a wheel, the oldest promises most: this function is of CPython 3.11.
    Binary("python-abi3", OF_311, tag="cp310.cp311-abi3-manylinux_2_41_x86_64"),
    Binary(None, OF_311, tag="cp311.cp312-abi3-manylinux_2_41_x86_64"),
    Binary(
        "torch-python",
        clean=NO_PYTHON,
        links=("libtorch_python.so",),
        tag="py3-none-manylinux_2_41_x86_64",
    ),
    Binary("python-tag", tag="py3-none-manylinux_2_41_x86_64"),
    # No installer knows these.
    Binary("python-tag", tag="py3-abi3-manylinux_2_41_x86_64"),
    Binary("python-tag", tag="cp3-abi3-manylinux_2_41_x86_64"),
    # Renamed, and hidden.
    Binary("module-init", file="_C.abi3.so"),
    Binary("module-init", clean=CLEAN.replace(DEFAULT, "")),
    # A tag for one CPython, which no library of the wheel needs.
    Binary("python-tag", clean=NO_PYTHON, tag="cp311-cp311-manylinux_2_41_x86_64"),
    Binary("platform-tag", tag="cp310-abi3-linux_aarch64"),
    Binary("platform-tag", tag="cp310-abi3-manylinux_2_41_aarch64"),
    Binary("platform-tag", tag="cp310-abi3-manylinux_2_41_x86_64.manylinux_2_41_aarch64"),
    Binary("platform-tag", tag="cp310-abi3-musllinux_1_2_x86_64"),
    Binary("platform-tag", tag="cp310-abi3-win_amd64"),
    Binary("platform-tag", tag="cp310-abi3-any"),
    Binary("glibc", strange=("libm.so.6", "GLIBC_2.99"), tag=LINUX, against=False),
    Binary("glibcxx", strange=("libstdc++.so.6", "GLIBCXX_3.4.99"), tag=LINUX, against=False),
    Binary("cxxabi", strange=("libstdc++.so.6", "CXXABI_1.3.99"), tag=LINUX, against=False),
    Binary("manylinux", tag="cp310-abi3-manylinux_2_5_x86_64"),
    Binary("cxx11-abi", flags=("-D_GLIBCXX_USE_CXX11_ABI=0",)),
    Binary("compiler-abi", comment="GCC: (GNU) 4.8.5 20150623 (Red Hat 4.8.5-44)"),
    Binary("compiler-floor", comment="GCC: (GNU) 9.4.0"),
    Binary("nvcc-host", comment="GCC: (GNU) 16.1.0"),
    Binary("needed", strange=("libstrange.so.1", None), against=False),
    Binary("symbol-versions", version=0x55, against=False),
    Binary("rpath", flags=("-Wl,-rpath,/home/builder/ext/build/lib",)),
    Binary("bundled-torch", bundled="ext/lib/libtorch_cpu.so"),
    Binary("cuda-runtime", cudart=12, against=False),
    Binary("cuda-architectures", images=((2, 80, ""), (2, 90, ""), (1, 90, "a"))),
    Binary("executable-stack", flags=("-Wl,-z,execstack",)),
    Binary("relro", flags=("-Wl,-z,norelro",)),
    Binary(
        "text-relocations",
        'extern "C" int PyInit_ext();\nasm(".text\\n.balign 8\\n.quad PyInit_ext\\n");\n',
        flags=("-Wl,-z,notext",),
    ),
    Binary("exports", '__attribute__((visibility("default"))) int helper() { return 1; }\n'),
    Binary("debug-info", flags=("-s",)),
    Binary("loads", torch=("2.10.0", "aoti_torch_library_init_fragment")),
)


def fat_binary(images: tuple[tuple[int, int, str], ...]) -> bytes:
    """One container as nvcc 13 writes it, of images (1 PTX or 2 cubin, architecture, suffix)."""
    entries = b""
    for kind, architecture, suffix in images:
        flags = 0x11 | {"": 0, "a": 0x100000, "f": 0x200000}[suffix]
        version = (0, 9) if kind == 1 else (8, 1)  # PTX ISA 9.0 is of CUDA 13.0
        rest = struct.pack("<IIHHIIIQQQ", 0, 64, *version, architecture, 0, 0, flags, 0, 0)
        entries += struct.pack("<HHIQ", kind, 0x101, 64, 8) + rest + b"\x7fELF\0\0\0\0"
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def install_torch(toolchain: Toolchain, version: str, *functions: str) -> Path:
    """A torch made of stubs."""
    toolchain.stub("torch/lib/libtorch_cpu.so", functions)
    toolchain.stub("torch/lib/libtorch_cuda.so", CUDA_SHIMS)
    toolchain.stub("torch/lib/libcudart.so.13", ("cudaGetLastError",))
    torch = toolchain.folder / "torch"
    lines = f"__version__ = '{version}'\ncuda: str = '13.0'\n"
    (torch / "version.py").write_text(lines, encoding="utf-8")
    return torch


def set_version(toolchain: Toolchain, library: Path, index: int) -> None:
    """Damage the version of the first symbol."""
    versions = toolchain.folder / "versions"
    toolchain.run("objcopy", f"--dump-section=.gnu.version={versions}", str(library))
    data = bytearray(versions.read_bytes())
    data[2:4] = struct.pack("<H", index)
    versions.write_bytes(data)
    toolchain.run("objcopy", f"--update-section=.gnu.version={versions}", str(library))


def build(toolchain: Toolchain, binary: Binary) -> Path:
    """The fixture as a wheel."""
    (toolchain.folder / "code.fatbin").write_bytes(fat_binary(binary.images))
    version, *functions = binary.torch
    lib = install_torch(toolchain, version, *functions) / "lib"
    source, libraries = (
        binary.clean + binary.source,
        [toolchain.stub(f"libcudart.so.{binary.cudart}", ("cudaGetLastError",))],
    )
    if binary.torch_linked:
        libraries += [lib / "libtorch_cpu.so", lib / "libtorch_cuda.so"]
    libraries += [toolchain.stub(f"torch/lib/{name}", ("torch_odd",)) for name in binary.links]
    if binary.strange:
        libraries.append(
            toolchain.stub(f"strange/{binary.strange[0]}", ("odd",), binary.strange[1])
        )
        source += 'extern "C" int odd();\n' + exported("return odd();")
    library = toolchain.library(
        binary.file,
        source + DEVICE_CODE % (toolchain.folder / "code.fatbin"),
        *("-g", "-fvisibility=hidden", "-Wl,-z,relro,-z,now,--no-as-needed"),
        *map(str, libraries),
        *binary.flags,
    )
    toolchain.rewrite_comment(library, binary.comment)
    if binary.version is not None:
        set_version(toolchain, library, binary.version)
    wheel = toolchain.folder / f"ext-1.0-{binary.tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, f"ext/{library.name}")
        if binary.bundled:
            archive.write(lib / "libtorch_cpu.so", binary.bundled)
        archive.writestr(
            "ext-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ext\nVersion: 1.0\n"
        )
    return wheel


def audited(toolchain: Toolchain, binary: Binary) -> Report:
    """The audit of a fixture."""
    against = [toolchain.folder / "torch"] if binary.against else []
    return audit(build(toolchain, binary), DECLARED, against)


def test_every_rule_has_a_binary_that_breaks_it() -> None:
    assert {b.breaks for b in BINARIES if b.breaks} == {rule.id for rule in RULES}


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.breaks or "clean")
def test_the_audit_catches_exactly_the_rule_that_is_broken(
    toolchain: Toolchain, binary: Binary
) -> None:
    report = audited(toolchain, binary)
    assert report.failed_rules() == ((binary.breaks,) if binary.breaks else ())
    assert report.ok == (binary.breaks is None)


def test_the_clean_binary_leaves_no_rule_unchecked(toolchain: Toolchain) -> None:
    (library,) = audited(toolchain, Binary(None)).libraries
    assert {finding.status for finding in library.findings} == {"passed"}


def test_device_code_may_live_in_one_library_of_a_package(toolchain: Toolchain) -> None:
    build(toolchain, Binary(None))
    package = toolchain.folder / "package"
    package.mkdir()
    (toolchain.folder / "ext.abi3.so").rename(package / "ext.abi3.so")
    toolchain.library("package/libplain.so", "int nothing;\n")
    report = audit(package, Policy(cuda_architectures=DECLARED.cuda_architectures))
    found = {
        library.name: finding.status
        for library in report.libraries
        for finding in library.findings
        if finding.rule == "cuda-architectures"
    }
    assert found == {"ext.abi3.so": "passed", "libplain.so": "not run"}


def test_a_cuda_run_time_that_is_linked_in_counts_too(toolchain: Toolchain) -> None:
    build(toolchain, Binary(None))
    torch = toolchain.folder / "torch"
    lines = "__version__ = '2.13.0'\ncuda: str = '12.8'\n"
    (torch / "version.py").write_text(lines, encoding="utf-8")
    code = toolchain.folder / "code.fatbin"
    library = toolchain.library(
        "static.so",
        f'extern "C" int {CPU_SHIMS[0]}();\n' + exported(f"return {CPU_SHIMS[0]}();")
        + DEVICE_CODE % code,
        str(torch / "lib" / "libtorch_cpu.so"),
    )  # fmt: skip
    (found,) = audit(library, Policy(cuda="12.8"), [torch]).libraries
    assert "cuda-runtime" in {finding.rule for finding in found.failed}
    # It is nobody else's: torch's own runtime may be of another release.
    assert [verdict.outcome for verdict in found.verdicts] == ["loads"]


def test_the_libraries_of_torch_that_it_links_are_named(toolchain: Toolchain) -> None:
    for linked, names in ((True, "libtorch_cpu.so, libtorch_cuda.so"), (False, "none")):
        binary = Binary(None, torch_linked=linked, against=False)
        (library,) = audited(toolchain, binary).libraries
        assert [f.found for f in library.findings if f.rule == "torch-linked"] == [names]


def test_torch_may_be_brought_by_another_library_of_the_package(toolchain: Toolchain) -> None:
    lib = install_torch(toolchain, "2.13.0", *CPU_SHIMS) / "lib"
    flags = ("-Wl,-soname,libcore.so,--no-as-needed", str(lib / "libtorch_cpu.so"))
    core = toolchain.library("package/libcore.so", "int core;\n", *flags)
    source = f'extern "C" int {CPU_SHIMS[0]}();\n' + exported(f"return {CPU_SHIMS[0]}();")
    op = toolchain.library("package/op.so", source, "-Wl,--no-as-needed", str(core))
    found = {each.name: each for each in audit(core.parent).libraries}
    assert "torch-linked" not in rules(found["op.so"])
    assert "torch-linked" in rules(audit(op).libraries[0])


def rules(library: LibraryReport) -> set[str]:
    """The rules that it breaks."""
    return {finding.rule for finding in library.failed}
