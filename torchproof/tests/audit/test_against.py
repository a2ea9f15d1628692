"""What the audit foretells of a load is what the loader does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from torchproof.audit import Policy, Verdict, against, audit
from torchproof.audit.checks.binding import loads

if TYPE_CHECKING:
    from pathlib import Path

    from torchproof.audit.outcome import Outcome

    from .conftest import Toolchain

CALL = 'extern "C" int {0}();\nextern "C" int call_{0}() {{ return {0}(); }}\n'
DATA = 'extern "C" int {0};\nint* address_of_{0} = &{0};\n'
THERE = "aoti_torch_device_type_cpu"
GONE = "aoti_torch_gone"


def stub_torch(toolchain: Toolchain, version: str = "2.13.0", cuda: str | None = None) -> Path:
    """A torch with one stable and one C++ function."""
    toolchain.stub("torch/lib/libtorch_cpu.so", [THERE, "_ZN3c1014current_deviceEv"])
    text = f"__version__ = '{version}'\ncuda = {cuda!r}\n"
    (toolchain.folder / "torch" / "version.py").write_text(text, encoding="utf-8")
    return toolchain.folder / "torch"


def predicted(library: Path, torch: Path, policy: Policy | None = None) -> Verdict:
    """The audit's verdict on one library in one torch."""
    report = audit(library, policy, [torch])
    return report.libraries[0].verdicts[0]


def loaded(library: Path, torch: Path) -> str | None:
    """What the loader says of it in a process of its own; None when it loads."""
    code = f"import ctypes; ctypes.CDLL({str(library)!r})"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(torch / "lib")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


@dataclass(frozen=True)
class Case:
    """A library, and what the loader must say of it."""

    name: str
    source: str
    says: str | None
    flags: tuple[str, ...] = ()


CASES = (
    Case("everything there", CALL.format(THERE), None),
    Case("a call to nothing", CALL.format(THERE) + CALL.format(GONE), GONE),
    # Data is bound before calls, wherever it stands in the source.
    Case("data before calls", CALL.format("aoti_torch_a") + DATA.format(GONE), GONE),
    Case("weak and absent", f'extern "C" __attribute__((weak)) int {GONE}();\n'
         + CALL.format(THERE) + f"bool there = {GONE} != nullptr;\n", None),
    Case("Python's own", CALL.format("PyErr_Clear") + CALL.format(THERE), None),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_complaint_of_the_loader_is_predicted(toolchain: Toolchain, case: Case) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    library = toolchain.library("ext.so", case.source, libtorch, *case.flags)
    verdict, message = predicted(library, torch), loaded(library, torch)
    if case.says is None:
        assert (verdict.outcome, message) == ("loads", None)
    else:
        assert verdict.outcome == "fails"
        assert verdict.missing[0] == case.says
        assert message is not None
        assert f"undefined symbol: {case.says}" in message


def test_the_libraries_that_are_not_there_are_named(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain)
    names = ("libstrange.so.7", "libodd.so.1")
    strange = [toolchain.stub(f"elsewhere/{name}", [f"odd_{at}"]) for at, name in enumerate(names)]
    source = CALL.format("odd_0") + CALL.format("odd_1") + CALL.format(THERE)
    library = toolchain.library("ext.so", source, *map(str, strange))
    verdict, message = predicted(library, torch), loaded(library, torch)
    assert (verdict.outcome, verdict.missing) == ("fails", names)
    assert message is not None
    assert f"{names[0]}: cannot open shared object file" in message


def test_a_symbol_version_the_system_lacks_is_named(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain)
    future = toolchain.stub("future/libstdc++.so.6", ["odd"], "CXXABI_1.3.99")
    source = CALL.format("odd") + CALL.format(THERE)
    library = toolchain.library("ext.so", source, str(future))
    verdict, message = predicted(library, torch), loaded(library, torch)
    assert verdict.outcome == "fails"
    assert "CXXABI_1.3.99" in verdict.missing[0]
    assert message is not None
    assert "version `CXXABI_1.3.99' not found" in message


def test_a_library_installed_beside_it_is_found(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    calling = f'extern "C" int {THERE}();\nextern "C" int helper() {{ return {THERE}(); }}\n'
    helper = str(toolchain.library("package/libhelper.so", calling, libtorch))
    source = CALL.format("helper") + CALL.format(THERE)
    toolchain.library("package/ext.so", source, helper, libtorch, "-Wl,-rpath,$ORIGIN")
    report = audit(toolchain.folder / "package", Policy(exports=("call_*",)), [torch])
    (ext,) = (library for library in report.libraries if library.name == "ext.so")
    assert ext.verdicts[0].outcome == "loads"
    assert "exports" not in report.failed_rules()  # of the helper, which the extension calls
    assert loaded(toolchain.folder / "package" / "ext.so", torch) is None


@pytest.mark.parametrize("origin", ["$ORIGIN", "${ORIGIN}"])
def test_a_search_path_begins_where_the_library_is(toolchain: Toolchain, origin: str) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    helper = str(toolchain.stub("package/lib/libhelper.so", ["helper"]))
    source = CALL.format("helper") + CALL.format(THERE)
    path = f"-Wl,-rpath,{origin}/lib"
    library = toolchain.library("package/ext.so", source, helper, libtorch, path)
    assert predicted(library, torch).outcome == "loads"
    assert loaded(library, torch) is None
    assert "rpath" not in audit(library).failed_rules()


@pytest.mark.parametrize(
    ("rpath", "reached"),
    [(None, False), ("$ORIGIN", False), ("$ORIGIN/nowhere", False), ("$ORIGIN/lib", True)],
)
def test_a_library_of_the_package_is_found_where_a_search_path_leads(
    toolchain: Toolchain, rpath: str | None, reached: bool
) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    helper = str(toolchain.stub("package/lib/libhelper.so", ["helper"]))
    flags = [f"-Wl,-rpath,{rpath}"] if rpath else []
    source = CALL.format("helper") + CALL.format(THERE)
    library = toolchain.library("package/ext.so", source, helper, libtorch, *flags)
    (ext, _) = audit(library.parent, None, [torch]).libraries
    (verdict,), message = ext.verdicts, loaded(library, torch)
    if reached:
        assert (verdict.outcome, message) == ("loads", None)
    else:
        assert verdict.outcome == "fails"
        assert verdict.reason == (
            "ext.so has no search path to libhelper.so, in $ORIGIN/lib: it loads only after"
            " something else has loaded that"
        )
        assert message is not None
        assert "libhelper.so: cannot open shared object file" in message


@pytest.mark.parametrize(("symbol", "loads"), [(THERE, True), (GONE, False)])
@pytest.mark.parametrize("own", [THERE, "aoti_torch_gone_too"])
def test_a_library_fails_with_one_of_its_package_that_it_needs(
    toolchain: Toolchain, symbol: str, loads: bool, own: str
) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    helper = str(toolchain.library("package/libhelper.so", CALL.format(symbol), libtorch))
    source = CALL.format(f"call_{symbol}") + CALL.format(own)
    flags = ("-Wl,-z,now,-rpath,$ORIGIN", libtorch)
    library = toolchain.library("package/ext.so", source, helper, *flags)
    (ext, _) = audit(library.parent, None, [torch]).libraries
    (verdict,), message = ext.verdicts, loaded(library, torch)
    if not loads:
        assert verdict.outcome == "fails"
        assert verdict.reason == f"undefined symbol: {GONE}, which libhelper.so needs"
        assert message is not None
        assert f"libhelper.so: undefined symbol: {GONE}" in message
    elif own == THERE:
        assert (verdict.outcome, message) == ("loads", None)
    else:
        assert verdict.reason == f"undefined symbol: {own}"


def test_a_library_of_the_package_finds_symbols_of_the_one_that_needs_it(
    toolchain: Toolchain,
) -> None:
    torch = stub_torch(toolchain)
    libtorch = str(torch / "lib" / "libtorch_cpu.so")
    helper = str(toolchain.library("package/libhelper.so", CALL.format("of_ext")))
    source = 'extern "C" int of_ext() { return 0; }\n' + CALL.format("call_of_ext")
    flags = (helper, libtorch, "-Wl,-z,now,-rpath,$ORIGIN")
    library = toolchain.library("package/ext.so", source + CALL.format(THERE), *flags)
    (ext, _) = audit(library.parent, None, [torch]).libraries
    assert (ext.verdicts[0].outcome, loaded(library, torch)) == ("loads", None)


def test_a_library_that_is_nowhere_comes_before_one_out_of_reach(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain)
    helper = str(toolchain.stub("package/lib/libhelper.so", ["helper"]))
    gone = toolchain.stub("gone/libgone.so", ["gone"])
    source = CALL.format("helper") + CALL.format("gone") + CALL.format(THERE)
    libraries = (helper, str(gone), str(torch / "lib" / "libtorch_cpu.so"))
    library = toolchain.library("package/ext.so", source, *libraries)
    (ext, _) = audit(library.parent, None, [torch]).libraries
    (verdict,) = ext.verdicts
    assert verdict.reason == "the library libgone.so is not there"
    assert verdict.missing == ("libgone.so",)


@pytest.mark.parametrize(
    ("tags", "named", "reached"),
    [
        ("--disable-new-dtags", False, True),  # RPATH is for what its libraries need, too
        ("--enable-new-dtags", False, False),  # RUNPATH is not
        ("--enable-new-dtags", True, True),  # but finds what the library needs itself
    ],
)
def test_what_a_library_of_the_package_needs_is_searched_as_the_loader_does(
    toolchain: Toolchain, tags: str, named: bool, reached: bool
) -> None:
    torch = stub_torch(toolchain)
    inner = str(toolchain.stub("package/lib/libinner.so", ["inner"]))
    outer = str(toolchain.library("package/lib/libouter.so", CALL.format("inner"), inner))
    source = CALL.format("call_inner") + CALL.format(THERE) + (CALL.format("inner") * named)
    path = f"-Wl,{tags},-rpath,$ORIGIN/lib"
    libraries = (outer, *([inner] if named else []), str(torch / "lib" / "libtorch_cpu.so"))
    library = toolchain.library("package/ext.so", source, *libraries, path)
    (ext, *_) = audit(library.parent, None, [torch]).libraries
    (verdict,), message = ext.verdicts, loaded(library, torch)
    if reached:
        assert (verdict.outcome, message) == ("loads", None)
    else:
        assert "libouter.so has no search path to libinner.so, in $ORIGIN:" in verdict.reason
        assert message is not None
        assert "libinner.so: cannot open shared object file" in message


NATIVE = """
namespace c10 { int current_device(); }
extern "C" int device() { return c10::current_device(); }
"""


@pytest.mark.parametrize(
    ("built_on", "outcome", "reason"),
    [
        ("2.13", "loads", "every symbol"),
        ("2.12", "unsafe", "built on torch 2.12"),
        (None, "unsafe", "nothing says which torch"),
    ],
)
def test_a_native_library_is_safe_only_in_its_own_torch(
    toolchain: Toolchain, built_on: str | None, outcome: str, reason: str
) -> None:
    torch = stub_torch(toolchain)
    library = toolchain.library("ext.so", NATIVE, str(torch / "lib" / "libtorch_cpu.so"))
    verdict = predicted(library, torch, Policy(torch=built_on))
    assert verdict.outcome == outcome
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ext_torch-1.0.data/platlib/ext/torch-2.13/lib/libext.so", "every symbol"),
        ("ext/libext_pytorch_2.12.1.so", "built on torch 2.12"),
        ("ext_torch-2.12.data/platlib/ext/libext.so", "nothing says which torch"),
        ("ext/torchlib-2.13.so", "nothing says which torch"),
    ],
)
def test_the_path_of_a_library_may_name_the_torch_that_it_was_built_on(
    toolchain: Toolchain, name: str, reason: str
) -> None:
    torch = stub_torch(toolchain)
    core = str(torch / "lib" / "libtorch_cpu.so")
    library = toolchain.library(f"package/{name}", NATIVE, core)
    assert reason in predicted(library.parents[name.count("/")], torch).reason


def test_a_second_cuda_runtime_is_unsafe(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain, cuda="13.0")
    toolchain.stub("torch/lib/libcudart.so.12", ["cudaGetLastError"])
    libraries = [str(torch / "lib" / name) for name in ("libtorch_cpu.so", "libcudart.so.12")]
    source = CALL.format(THERE) + CALL.format("cudaGetLastError")
    verdict = predicted(toolchain.library("ext.so", source, *libraries), torch)
    assert verdict.outcome == "unsafe"
    assert "CUDA 12 into a torch on CUDA 13.0" in verdict.reason


def test_a_library_for_another_machine_is_named(toolchain: Toolchain) -> None:
    torch = stub_torch(toolchain)
    libtorch = torch / "lib" / "libtorch_cpu.so"
    library = toolchain.library("ext.so", CALL.format(THERE), str(libtorch))
    image = bytearray(libtorch.read_bytes())
    image[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    libtorch.write_bytes(image)
    verdict = predicted(library, torch)
    assert verdict.outcome == "fails"
    assert "this torch for aarch64" in verdict.reason


# A package with a CUDA library of its own ---------------------------------------------------------


def outcome_of(*outcomes: tuple[str, str, tuple[str, ...]], apart: bool = True) -> Outcome:
    """What `loads` says of a CUDA library, given (torch, outcome, missing) for each torch."""
    found = tuple(Verdict(torch, "", end, "", lost) for torch, end, lost in outcomes)
    other = SimpleNamespace(needed=("libtorch_cpu.so",) if apart else ("libtorch_cuda.so",))
    subject = SimpleNamespace(
        facts=SimpleNamespace(binding="stable"), verdicts=found, others=((None, other),)
    )
    return loads(subject)


NO_CUDA = ("2.13.0+cpu", "fails", ("libtorch_cuda.so",))
WITH_CUDA = ("2.11.0+cu130", "loads", ())


def test_a_cuda_library_is_not_asked_for_beside_a_torch_without_cuda() -> None:
    assert outcome_of(NO_CUDA).status == "not run"
    assert outcome_of(NO_CUDA, WITH_CUDA).status == "passed"
    assert outcome_of(NO_CUDA, ("2.10.0+cu128", "fails", ("a symbol",))).status == "failed"


def test_the_only_library_of_a_package_must_load() -> None:
    assert outcome_of(NO_CUDA, apart=False).status == "failed"


@pytest.mark.parametrize(("shared", "danger"), [(None, False), (12, True)], ids=str)
def test_a_cuda_runtime_inside_the_library_is_nobody_elses(
    shared: int | None, danger: bool
) -> None:
    facts = SimpleNamespace(binding="stable", cuda_runtime=shared, cuda_major=12)
    torch = SimpleNamespace(cuda="13.0", series="2.13")
    found = against.danger(facts, torch, None)
    assert (found is not None) is danger


@pytest.mark.parametrize("brought", [True, False])
def test_what_the_environments_cpython_brings_is_found(toolchain: Toolchain, brought: bool) -> None:
    own = toolchain.stub("cpython/lib/x86_64-linux-gnu/libown.so.6", ["own"])
    libtorch = str(stub_torch(toolchain) / "lib" / "libtorch_cpu.so")
    source = CALL.format("own") + CALL.format(THERE)
    library = toolchain.library("ext.so", source, libtorch, str(own))
    home = toolchain.folder / ("cpython" if brought else "other") / "bin"
    environment = toolchain.folder / "environment"
    (toolchain.folder / "torch").rename(packages := site_packages(environment))
    (environment / "pyvenv.cfg").write_text(f"home = {home}\n", encoding="utf-8")
    verdict = predicted(library, packages)
    expected = ("loads", ()) if brought else ("fails", ("libown.so.6",))
    assert (verdict.outcome, verdict.missing) == expected


def site_packages(environment: Path) -> Path:
    """Where torch is in an environment."""
    folder = environment / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder / "torch"


def test_a_library_of_torch_that_its_import_does_not_load_is_out_of_reach(
    toolchain: Toolchain,
) -> None:
    torch = stub_torch(toolchain)
    core = torch / "lib" / "libtorch_cpu.so"
    extension = "torch/_C.cpython-311-x86_64-linux-gnu.so"
    toolchain.library(extension, "", "-Wl,--no-as-needed", str(core))
    apart = toolchain.stub("torch/lib/libnvrtc.so.13", ["nvrtcVersion"])
    library = toolchain.library(
        "pkg/lib.so", CALL.format(THERE), "-Wl,--no-as-needed", str(core), str(apart)
    )
    verdict = predicted(library, torch)
    assert (verdict.outcome, verdict.missing) == ("fails", ("libnvrtc.so.13",))
    code = f"import ctypes; ctypes.CDLL({str(core)!r}); ctypes.CDLL({str(library)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "libnvrtc.so.13: cannot open shared object file" in done.stderr


IMPORT = """def _preload_cuda_deps():
    libraries = [("cusolver", "libcusolver.so.*[0-9]")]


def _load_global_deps():
    ctypes.CDLL("libtorch_global_deps.so")
    {call}
"""
OPENING = {
    "all that it lists": "_preload_cuda_deps()",
    "what there is of its list": "_preload_cuda_deps(required=False)",
    "one by its name": '_preload_cuda_deps("cusolver", "libcusolver.so.*[0-9]")',
    "none": "pass",
}


@pytest.mark.parametrize("runtime", [True, False], ids=["CUDA", "no CUDA"])
@pytest.mark.parametrize("opening", OPENING)
def test_what_torchs_own_python_opens_is_in_reach(
    toolchain: Toolchain, opening: str, runtime: bool
) -> None:
    torch = stub_torch(toolchain, cuda="13.0")
    (torch / "__init__.py").write_text(IMPORT.format(call=OPENING[opening]), encoding="utf-8")
    solver = toolchain.stub("nvidia/cusolver/lib/libcusolver.so.12", ["cusolverDnCreate"])
    cudart = toolchain.stub("nvidia/runtime/lib/libcudart.so.13", ["cudaGetLastError"])
    core = torch / "lib" / "libtorch_cpu.so"
    all_needed = ("-Wl,--no-as-needed", str(core), *([str(cudart)] if runtime else []))
    toolchain.library("torch/lib/libtorch_global_deps.so", "", *all_needed)
    source = CALL.format("cusolverDnCreate") + CALL.format(THERE)
    verdict = predicted(toolchain.library("ext.so", source, str(core), str(solver)), torch)
    expected = ("loads", ()) if runtime and opening != "none" else ("fails", (solver.name,))
    assert (verdict.outcome, verdict.missing) == expected
