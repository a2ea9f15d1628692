"""What the audit reads from a binary: its compiler, its symbols, its device code, torch's C API."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sysconfig
import tracemalloc
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version
from samples import GOOD
from torchproof.audit import Policy, audit, elf, fatbin, headers, shims, symbols
from torchproof.audit.architectures import images_of
from torchproof.audit.artifact import is_torch_library
from torchproof.audit.elf_file import NotElfError
from torchproof.audit.manylinux import glibc_of
from torchproof.audit.policy import oldest_systems
from torchproof.audit.system_libraries import (
    find_library,
    library_folders,
    read_provider,
    system_ceilings,
)
from torchproof.audit.torches import find_torch

if TYPE_CHECKING:
    from .conftest import Toolchain


@pytest.fixture
def torch_folder() -> Path:
    """The torch of the test environment, found without importing it."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("not run: there is no torch here whose headers could be read")
    return Path(spec.submodule_search_locations[0])


def test_the_compiler_at_hand_is_recognised(toolchain: Toolchain) -> None:
    library = toolchain.library("ext.so", "int nothing;\n")
    output = subprocess.run(
        [toolchain.compiler, "-dumpfullversion", "-dumpversion"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    (found,) = audit(library).libraries
    assert found.facts.compiler is not None
    assert found.facts.compiler.version == output


@pytest.mark.parametrize(
    ("comments", "compiler"),
    [
        (("GCC: (GNU) 4.8.5 20150623 (Red Hat 4.8.5-44)", "GCC: (GNU) 10.2.1"), "gcc 10.2.1"),
        (("GCC: (Debian 12.2.0-14) 12.2.0", "Debian clang version 16.0.6 (1)"), "clang 16.0.6"),
        (("Linker: LLD 18.1.3",), "None"),
    ],
)  # fmt: skip
def test_start_files_do_not_pass_for_the_compiler(
    toolchain: Toolchain, comments: tuple[str, ...], compiler: str
) -> None:
    library = toolchain.library("ext.so", "int nothing;\n")
    toolchain.rewrite_comment(library, "\0".join(comments))
    assert str(audit(library).libraries[0].facts.compiler) == compiler


TORCH_CXX = (
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZNK2at10TensorBase4sizeEl",
    "_Z16THPVariable_WrapRKN2at10TensorBaseE",
    "THPVariableClass",
    "_ZTIN3c105ErrorE",
    "_ZTVN5torch8autograd4NodeE",
    "_ZThn16_N5torch8autograd4NodeD1Ev",
    "_ZN3c10lsERSoNS_10DeviceTypeE",  # an operator: no digit follows the namespace
    "_ZN3c10eqERKNS_6ScalarES2_",
    "_ZN4c10d12ProcessGroup9getRankEv",
    "_ZNKSt4hashIN3c106DeviceEEclES1_",
    "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb",
)
NOT_TORCH = (
    "aoti_torch_library_init_def",
    "torch_call_dispatcher",
    "_ZN8mytorch4sizeEv",
    "_ZN8facebook10torchcodec6decodeERKN5torch6stable6TensorE",
    "_ZN9fairseq2n5to_idERKN2at6TensorE",
    "_ZNSt6vectorIN5torch6stable6TensorESaIS2_EE9push_backEOS2_",
    "_Z5torchv",
    "torch_geometric_sort",
    "_ZNSt6vectorIiSaIiEE9push_backERKi",
    "memcpy",
)


@pytest.mark.parametrize("name", TORCH_CXX)
def test_a_cxx_symbol_of_torch_is_recognised(name: str) -> None:
    assert symbols.is_torch_cxx(name)


@pytest.mark.parametrize("name", NOT_TORCH)
def test_other_symbols_do_not_tie_to_a_torch(name: str) -> None:
    assert not symbols.is_torch_cxx(name)


@pytest.mark.parametrize(
    ("name", "strings"),
    [
        ("_ZNSs4sizeEv", {False}),
        ("_ZN3c105ErrorC1ERKSsS2_", {False}),
        ("_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE7reserveEm", {True}),
        ("_ZNSt13runtime_errorC1EPKc", set()),
        ("_ZNSolsEi", set()),
    ],
)
def test_the_string_a_symbol_mentions(name: str, strings: set[bool]) -> None:
    assert symbols.cxx11_strings([name]) == strings


def test_declared_architectures_are_images() -> None:
    declared = ("8.0", "9.0a+PTX", "12.0", "sm_75", "compute_100f")
    images = ("sm_80", "sm_90a", "compute_90a", "sm_120", "sm_75", "compute_100f")
    assert images_of(declared) == images
    with pytest.raises(ValueError, match="'hopper' is no CUDA architecture"):
        images_of(["hopper"])


def test_a_damaged_fat_binary_is_an_error() -> None:
    with pytest.raises(fatbin.FatbinError, match="magic 0x11111111"):
        fatbin.read(BytesIO(b"\x11" * 32), [(0, 32)])
    with pytest.raises(fatbin.FatbinError, match="cut short"):
        fatbin.read(BytesIO(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 128) + b"\x02\0"), [(0, 18)])


def test_a_release_behind_the_gpu_programs_made_none_of_them() -> None:
    stream = BytesIO(bytes(256) + b"Cuda compilation tools, release 12.4")
    assert fatbin.read(stream, [(128, 128)]).releases == ()


@pytest.mark.parametrize(
    "packing", [(), ("-Xfatbin", "-compress-all")], ids=["plain", "compressed"]
)
def test_the_device_code_of_the_real_nvcc(tmp_path: Path, packing: tuple[str, ...]) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("not run: there is no nvcc, whose output is read")
    (tmp_path / "k.cu").write_text("__global__ void k(float* a) { a[threadIdx.x] = 0; }\n")
    targets = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=[sm_90a,compute_90a]"]
    flags = [word for target in targets for word in ("-gencode", target)]
    library = tmp_path / "k.so"
    subprocess.run(
        [nvcc, "-shared", "-Xcompiler", "-fPIC", *flags, *packing, "k.cu", "-o", str(library)],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    output = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    facts = audit(library, Policy()).libraries[0].facts
    assert set(facts.cuda_images) == {"sm_80", "sm_90a", "compute_90a"}
    assert len(facts.cuda_releases) == 1
    assert f"release {facts.cuda_releases[0]}," in output


HEADER = """
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0
AOTI_TORCH_EXPORT AOTITorchError torch_new(
    const char* name, // a comment (with a parenthesis)
    void** ret);
#ifdef USE_CUDA
AOTI_TORCH_EXPORT AOTITorchError torch_stream(void* stream);
#endif // USE_CUDA
#endif
AOTI_TORCH_EXPORT int32_t aoti_torch_old();
AOTI_TORCH_EXPORT const char* torch_what();
"""


def test_guards_of_a_header_are_followed() -> None:
    assert list(headers.declarations(HEADER)) == [
        headers.Declaration("torch_new", "2.10", None),
        headers.Declaration("torch_stream", "2.10", "cuda"),
        headers.Declaration("aoti_torch_old", None, None),
        headers.Declaration("torch_what", None, None),
    ]


def test_a_function_without_a_guard_is_as_old_as_the_first_header_with_it(tmp_path: Path) -> None:
    for version, functions in {"2.9.1": "a", "2.10.0": "abc", "2.11.0": "ab"}.items():
        header = tmp_path / version / "include" / "torch" / "csrc" / "stable" / "c" / "shim.h"
        header.parent.mkdir(parents=True)
        (tmp_path / version / "lib").mkdir()
        (tmp_path / version / "version.py").write_text(f"__version__ = '{version}'\n")
        header.write_text("".join(f"AOTI_TORCH_EXPORT int torch_{f}();\n" for f in functions))
    document = headers.generate([tmp_path / "2.11.0", tmp_path / "2.9.1", tmp_path / "2.10.0"])
    assert document["since"] == {"2.9": ["torch_a"], "2.10": ["torch_b", "torch_c"]}
    assert document["removed"] == {"2.11": ["torch_c"]}


def newer(version: str, than: str) -> bool:
    return Version(version) > Version(than)


def test_the_table_knows_every_stable_function_of_the_torch_at_hand(torch_folder: Path) -> None:
    declared = headers.read_torch(torch_folder)
    known = shims.table()
    assert set(declared) <= set(known), (
        "regenerate it: python -m torchproof.audit.headers TORCH_DIR..."
    )
    late = {
        name for name, row in declared.items() if row.guard and newer(row.guard, known[name].since)
    }
    assert late == set()


def test_the_functions_of_the_table_are_in_the_torch_at_hand(torch_folder: Path) -> None:
    series = find_torch(torch_folder).series
    here = [
        name
        for name, shim in shims.table().items()
        if not shim.device and not newer(shim.since, series)
    ]
    library = read_provider(torch_folder / "lib" / "libtorch_cpu.so")
    assert library is not None
    assert sorted(set(here) - library.defined) == []


STABLE_SOURCE = """
extern "C" int aoti_torch_device_type_cpu(), torch_geometric_sort();
extern "C" int call() { return aoti_torch_device_type_cpu() + torch_geometric_sort(); }
"""


def test_a_c_function_that_torch_does_not_have_is_no_stable_function(toolchain: Toolchain) -> None:
    sibling = toolchain.stub("libsort.so", ["torch_geometric_sort"])
    library = toolchain.library("ext.so", STABLE_SOURCE, str(sibling))
    (found,) = audit(library, Policy(target="2.10")).libraries
    assert set(found.facts.shims) == {"aoti_torch_device_type_cpu"}
    assert "stable-target" not in {finding.rule for finding in found.failed}


NATIVE_STRING = """
#include <string>
namespace c10 { void warn(const std::string&); }
extern "C" void call() { c10::warn("text"); }
"""


def test_nothing_is_required_of_a_torch_that_nobody_named(toolchain: Toolchain) -> None:
    old = toolchain.library("ext.so", NATIVE_STRING, "-D_GLIBCXX_USE_CXX11_ABI=0")
    toolchain.rewrite_comment(old, "GCC: (GNU) 5.4.0")
    for torch, status in ((None, "not run"), ("2.3", "passed"), ("2.13", "failed")):
        findings = {f.rule: f.status for f in audit(old, Policy(torch=torch)).libraries[0].findings}
        assert findings["cxx11-abi"] == status
    assert compiler_floor(old) == ("not run", "nothing says which torch it was built on (--torch)")


def compiler_floor(library: Path, torch: str | None = None) -> tuple[str, str]:
    """What the rule of the compiler says of a library that is for a torch."""
    (report,) = audit(library, Policy(torch=torch)).libraries
    (found,) = (finding for finding in report.findings if finding.rule == "compiler-floor")
    return found.status, found.expected


def test_a_torch_before_cxx17_requires_no_compiler_for_it(toolchain: Toolchain) -> None:
    old = toolchain.library("ext.so", NATIVE_STRING)
    toolchain.rewrite_comment(old, "GCC: (GNU) 7.5.0")
    assert compiler_floor(old, "1.12") == ("not run", "torch 1.12 is no C++17 yet")
    assert compiler_floor(old, "2.0") == ("failed", "gcc >= 9.3: torch 2.0 is C++17")


def test_a_string_of_a_library_without_torch_is_not_torchs(toolchain: Toolchain) -> None:
    source = "#include <string>\nvoid name(const std::string&);\nvoid f() { name({}); }\n"
    library = toolchain.library("ext.so", source, "-D_GLIBCXX_USE_CXX11_ABI=0")
    (report,) = audit(library, Policy(torch="2.13")).libraries
    assert report.facts.cxx11_abi is False
    (found,) = (finding for finding in report.findings if finding.rule == "cxx11-abi")
    assert (found.status, found.expected) == ("not run", "it uses no torch")


def without_sections(library: Path) -> Path:
    """The library as sstrip leaves it: the loader reads no section header."""
    image = bytearray(library.read_bytes())
    image[0x28:0x30] = bytes(8)  # e_shoff
    image[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    path = library.with_name("sstripped.so")
    path.write_bytes(image)
    return path


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_a_library_without_sections_is_read_as_the_loader_reads_it(
    toolchain: Toolchain, style: str
) -> None:
    torch = toolchain.stub("libtorch_cpu.so", ["aoti_torch_device_type_cpu"])
    source = f"#include <string>\nstd::string text(3, 'x');\n{STABLE_SOURCE}"
    library = toolchain.library("ext.so", source, str(torch), f"-Wl,--hash-style={style}")
    whole, stripped = elf.read(library), elf.read(without_sections(library))
    assert stripped.needed == whole.needed
    assert stripped.versions == whole.versions
    assert {symbol.name for symbol in stripped.exported} == {s.name for s in whole.exported}
    # A symbol that no relocation names is nothing to the loader.
    strong = {symbol.name for symbol in whole.undefined if not symbol.weak}
    assert {symbol.name for symbol in stripped.undefined} >= strong
    (found,) = audit(stripped.path, Policy()).libraries
    assert found.facts.binding == "stable"


def container(architecture: int) -> bytes:
    """A fat binary of one GPU program."""
    entry = struct.pack("<HHIQIIHHIIIQ", 2, 0x101, 64, 8, 0, 0, 1, 8, architecture, 0, 0, 0x100011)
    entry += bytes(16) + b"\x7fELF" + bytes(4)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def test_device_code_is_found_without_sections() -> None:
    magic_by_chance = struct.pack("<I", 0xBA55ED50) + b"text"
    data = b"code" * 9 + magic_by_chance + container(90) + bytes(12) + container(90)
    found = fatbin.search(BytesIO(data), len(data))
    assert found.images == (fatbin.Image("sm_90a", None),)
    assert found.releases == ()


@pytest.mark.parametrize("padding", [0, 4, 12, 5000])
def test_what_pads_fat_binaries_is_passed_over(padding: int) -> None:
    data = container(80) + bytes(padding) + container(90) + bytes(padding)
    found = fatbin.read(BytesIO(data), [(0, len(data))])
    assert [image.name for image in found.images] == ["sm_80a", "sm_90a"]


LARGE = 256 << 20


def test_a_large_library_is_not_taken_into_memory(tmp_path: Path) -> None:
    """Extensions for many GPUs have a gigabyte of device code."""
    library = tmp_path / "ext.so"
    library.write_bytes(GOOD)
    os.truncate(library, LARGE)
    tracemalloc.start()
    try:
        assert audit(library).libraries
        with library.open("rb") as stream:
            assert fatbin.read(stream, [(LARGE // 2, LARGE // 2)]).images == ()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LARGE // 8


def lines(*command: str) -> list[list[str]]:
    """What a tool prints, as words."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


REAL = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")


@pytest.mark.parametrize("name", REAL)
def test_the_symbols_of_a_real_library_are_those_of_nm(name: str) -> None:
    provider = find_library(name, library_folders(), platform.machine())
    assert provider is not None
    path = str(provider.path)
    undefined = {words[-1].split("@")[0] for words in lines("nm", "-D", "--undefined-only", path)}
    defined = {words[-1].split("@")[0] for words in lines("nm", "-D", "--defined-only", path)}
    needed = [
        words[-1].strip("[]") for words in lines("readelf", "-d", path) if "(NEEDED)" in words
    ]
    found = elf.read(provider.path)
    assert {symbol.name for symbol in found.undefined} == undefined
    assert provider.defined == defined
    assert list(found.needed) == needed


OP = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
using torch::stable::Tensor;
static Tensor twin(const Tensor& a) { return torch::stable::empty_like(a); }
STABLE_TORCH_LIBRARY(audited, m) { m.def("twin(Tensor a) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(audited, CPU, m) { m.impl("twin", TORCH_BOX(&twin)); }
"""
NATIVE_OP = """
#include <torch/library.h>
static at::Tensor twin(const at::Tensor& a) { return a.clone(); }
TORCH_LIBRARY(audited, m) { m.def("twin", &twin); }
"""


def compiled(toolchain: Toolchain, torch: Path, source: str, *flags: str) -> Path:
    """An op compiled against the real torch."""
    links = ("-L", str(torch / "lib"), "-ltorch", "-ltorch_cpu", "-lc10", "-fvisibility=hidden")
    return toolchain.library(
        "op.so", source, "-std=c++20", "-I", str(torch / "include"), *links, *flags
    )


def test_a_real_stable_op_needs_the_torch_it_targets(
    toolchain: Toolchain, torch_folder: Path
) -> None:
    op = compiled(toolchain, torch_folder, OP, "-DTORCH_TARGET_VERSION=0x020a000000000000")
    (library,) = audit(op, Policy(binding="stable", target="2.10"), [torch_folder]).libraries
    assert library.failed == ()
    assert library.facts.lowest_torch == "2.10"
    assert [verdict.outcome for verdict in library.verdicts] == ["loads"]


def test_a_real_stable_op_without_a_target_is_caught(
    toolchain: Toolchain, torch_folder: Path
) -> None:
    op = compiled(toolchain, torch_folder, OP)
    report = audit(op, Policy(binding="stable", target="2.10"), [torch_folder])
    assert report.failed_rules() == ("stable-target",)


def test_a_real_native_op_is_tied_to_its_torch(toolchain: Toolchain, torch_folder: Path) -> None:
    series = find_torch(torch_folder).series
    op = compiled(toolchain, torch_folder, NATIVE_OP)
    (own,) = audit(op, Policy(binding="native", torch=series), [torch_folder]).libraries
    assert any("torch::Library" in name for name in own.facts.torch_cxx)
    assert own.facts.cxx11_abi is True
    assert own.failed == ()
    (other,) = audit(op, Policy(binding="native", torch="2.4"), [torch_folder]).libraries
    assert [verdict.outcome for verdict in other.verdicts] == ["unsafe"]


PYBIND = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(op, m) { m.def("twice", [](int a) { return 2 * a; }); }
"""


def test_a_pybind11_module_renamed_abi3_is_caught(toolchain: Toolchain, torch_folder: Path) -> None:
    python = sysconfig.get_path("include")
    if not (Path(python) / "Python.h").exists():
        pytest.skip("not run: there is no Python.h, which a module of pybind11 needs")
    includes = ("-I", str(torch_folder / "include"), "-I", python, "-fvisibility=hidden")
    module = toolchain.library("op.abi3.so", PYBIND, "-std=c++17", *includes)
    report = audit(module, Policy())
    assert report.failed_rules() == ("python-abi3",)
    findings = {finding.rule: finding.found for finding in report.libraries[0].findings}
    assert "outside the limited API: " in findings["python-abi3"]


@pytest.mark.parametrize(
    ("name", "init", "status"),
    [
        ("_C.cpython-311-x86_64-linux-gnu.so", "PyInit__C", "passed"),
        ("_C.cpython-314t-x86_64-linux-gnu.so", "PyInit__C", "passed"),
        ("_C.cpython-311-x86_64-linux-gnu.so", "PyInit_other", "failed"),
        ("_C.abi3.so", "PyInit__c", "failed"),
        ("_C.cpython-315-x86_64-linux-gnu.so", "PyModExport__C", "passed"),  # PEP 793
        ("müladd.abi3.so", "PyInitU_mladd_kva", "passed"),  # PEP 489
        ("müladd.abi3.so", "PyInit_muladd", "failed"),
        ("_C.so", "PyInit_other", "not run"),  # may be for torch.ops.load_library
        ("libdecay.so.1", "PyInit_other", "not run"),
    ],
)
def test_a_file_that_is_named_as_a_module_has_its_init_function(
    toolchain: Toolchain, name: str, init: str, status: str
) -> None:
    source = 'extern "C" int PyModule_Create2();\nextern "C" int {}() {{ return {}; }}\n'
    for api, expected in (("PyModule_Create2()", status), ("0", "not run")):
        library = toolchain.library(name, source.format(init, api))
        (found,) = audit(library, Policy()).libraries
        outcomes = {finding.rule: finding.status for finding in found.findings}
        assert outcomes["module-init"] == expected


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 20)
    with pytest.raises(NotElfError, match="would end at byte 64, and the file at 27"):
        elf.read(damaged)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("libtorch.so", True),
        ("libtorch_cpu.so", True),
        ("libc10_cuda.so", True),
        ("libtorch_cpu-0a1b2c3d.so", True),
        ("libtorch.0a1b2c3d.so.2", True),
        ("libtorch_cuda_linalg.so", True),
        ("libtorch_python.so.2.13", True),
        ("libtorch-xpu-ops-sycl-Sorting.so", True),
        ("libtorchaudio.abi3.so", False),
        ("libtorch_npu.so", False),
        ("libtorch_ops-0a1b2c3d.so", False),
        ("libc10d_ops.so", False),
        ("libtorchcodec_core4.so", False),
        ("libdecay.so", False),
    ],
)
def test_a_library_of_torch_is_known_by_its_name(name: str, own: bool) -> None:
    assert is_torch_library(name) == own


def test_this_machine_is_its_own_ceiling(toolchain: Toolchain) -> None:
    ceilings = system_ceilings()
    assert ceilings.glibc == platform.libc_ver()[1]
    source = "#include <iostream>\nint main() { std::cout << 1; }\n"
    report = audit(toolchain.library("ext.so", source), Policy(ceilings=ceilings))
    found = {finding.rule: finding.status for finding in report.libraries[0].findings}
    assert {found[rule] for rule in ("glibc", "glibcxx", "cxxabi")} == {"passed"}


@pytest.mark.parametrize(
    ("policy", "systems"),
    [
        ("manylinux_2_28_x86_64", {"Debian 10", "RHEL 8", "Ubuntu 20.04"}),
        ("manylinux_2_34_aarch64", {"Debian 12", "RHEL 9", "Ubuntu 22.04"}),
        ("linux_x86_64", set()),
    ],
)
def test_the_oldest_systems_follow_from_the_policy(policy: str, systems: set[str]) -> None:
    assert set(oldest_systems(glibc_of(policy))) == systems
