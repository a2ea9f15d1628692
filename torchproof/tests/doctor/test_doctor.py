"""From a message, a file or what is installed to the rule that is broken and its fix."""

from __future__ import annotations

import ctypes
import io
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from torchproof.audit.rules import RULES
from torchproof.cli import main as torchproof
from torchproof.doctor.__main__ import main
from torchproof.doctor.symptoms import SYMPTOMS

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Toolchain

THERE = "aoti_torch_device_type_cpu"
NEW_STRING = (
    "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
OLD_STRING = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
CALL = 'extern "C" int {0}();\nextern "C" int call_{0}() {{ return {0}(); }}\n'
# Rules that are no property of a binary, so the audit has none of their name.
OF_NO_BINARY = {"build-isolation", "driver"}


def make_torch(toolchain: Toolchain, version: str = "2.13.0+cpu", cuda: str | None = None) -> Path:
    """An environment with a torch of stubs; its site-packages."""
    site = "env/lib/python3.12/site-packages"
    toolchain.stub(f"{site}/torch/lib/libtorch_cpu.so", [THERE, "_ZN3c1014current_deviceEv"])
    toolchain.stub(f"{site}/torch/lib/libc10.so", [NEW_STRING])
    folder = toolchain.folder / site
    text = f"__version__ = '{version}'\ncuda = {cuda!r}\n"
    (folder / "torch" / "version.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def site(toolchain: Toolchain) -> Path:
    """The site-packages of a torch 2.13.0 without CUDA."""
    return make_torch(toolchain)


def answer(
    capsys: pytest.CaptureFixture[str], site: Path, *what: str, code: int = 0
) -> dict[str, Any]:
    """The doctor's answer as data."""
    assert main([*what, "--environment", str(site), "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@dataclass(frozen=True)
class Sample:
    """A message from the field, the rule it breaks, and what cause and commands must name."""

    rule: str
    text: str
    names: tuple[str, ...] = ()


FLASH = "ImportError: /env/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310.so: "
SAMPLES = (
    # As CPython colours it from 3.13 on, in a log.
    Sample("needed", "\x1b[1;35mImportError\x1b[0m: \x1b[35mlibfoo.so.3: cannot open shared object"
           " file: No such file or directory\x1b[0m", ("ldconfig -p | grep libfoo.so.3",)),
    # Of an environment's own libstdc++: the system has that version.
    Sample("glibcxx", "ImportError: /env/lib/libstdc++.so.6: version `GLIBCXX_3.4.9' not found",
           ("GLIBCXX_3.4.9, which the libstdc++ that was loaded lacks", "conda install")),
    Sample("binding", FLASH + "undefined symbol: _ZNK3c105Error4whatEv",
           ("c10::Error::what()", "torch 2.13.0+cpu", "--no-binary flash_attn_2_cuda")),
    Sample("binding", FLASH + "undefined symbol: _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymInt"
           "EEENS2_8optionalINS2_10ScalarTypeEEENS6_INS2_6LayoutEEENS6_INS2_6DeviceEEENS6_IbEE",
           ("at::_ops::zeros::call(...)",)),
    Sample("binding", "_ZN5torch8autograd4Node4nameEv", ("torch::autograd::Node::name()",)),
    Sample("cxx11-abi", FLASH + f"undefined symbol: {OLD_STRING}",
           ("c10::Error::Error(c10::SourceLocation, std::", "_GLIBCXX_USE_CXX11_ABI")),
    Sample("torch-linked", FLASH + f"undefined symbol: {NEW_STRING}", ("import torch",)),
    Sample("torch-linked", f"OSError: op.so: undefined symbol: {THERE}", ("import torch",)),
    Sample("stable-target", "OSError: /x/_C.abi3.so: undefined symbol: torch_from_blob_v9",
           ("torch_from_blob_v9", "pip install --upgrade torch")),
    Sample("stable-target", "aoti_torch_not_yet", ("aoti_torch_not_yet",)),
    Sample("cuda-runtime", FLASH + "undefined symbol: _ZN3c104cuda9SetDeviceEi",
           ("c10::cuda::SetDevice(...)", "without CUDA")),
    Sample("cuda-runtime", FLASH + "undefined symbol: cudaLaunchKernelExC", ("without CUDA",)),
    Sample("cuda-runtime", "ImportError: libcusparse.so.12: undefined symbol:"
           " __nvJitLinkComplete_12_4, version libnvJitLink.so.12", ("__nvJitLinkComplete_12_4",)),
    Sample("python-tag", "ImportError: ext.so: undefined symbol: _PyThreadState_UncheckedGet",
           ("_PyThreadState_UncheckedGet", "3.12")),
    Sample("glibcxx", "OSError: op.so: undefined symbol: _ZSt28__throw_bad_array_new_lengthv",
           ("std::__throw_bad_array_new_length()",)),
    Sample("glibc", "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.99' not found"
           " (required by /v/lib/python3.12/site-packages/sgl_kernel/common_ops.abi3.so)",
           ("GLIBC_2.99", "sgl_kernel")),
    Sample("glibcxx", "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version"
           " `GLIBCXX_3.4.99' not found (required by _C.so)", ("GLIBCXX_3.4.99", "conda install")),
    Sample("cxxabi", "libstdc++.so.6: version `CXXABI_1.3.99' not found", ("CXXABI_1.3.99",)),
    Sample("cuda-architectures", "torch.AcceleratorError: CUDA error: no kernel image is available"
           " for execution on the device\nCUDA kernel errors might be asynchronously reported",
           ("PTX",)),
    Sample("cuda-runtime", "RuntimeError: Detected that PyTorch and torchvision were compiled with"
           " different CUDA major versions. PyTorch has CUDA Version=12.1 and torchvision has CUDA"
           " Version=11.8. Please reinstall the torchvision that matches your PyTorch install.",
           ("torchvision", "pip install --force-reinstall torch==2.13.0 torchvision")),
    Sample("cuda-runtime", "OSError: Detected that PyTorch and TorchAudio were compiled with"
           " different CUDA versions. PyTorch has CUDA version 12.8 whereas TorchAudio has CUDA"
           " version 12.6.", ("TorchAudio",)),
    Sample("cuda-runtime", "RuntimeError: \nThe detected CUDA version (11.8) mismatches the version"
           " that was used to compile\nPyTorch (12.1). Please make sure to use the same CUDA"
           " versions.", ("CUDA_HOME=/usr/local/cuda-12.1",)),
    Sample("cuda-runtime", "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers"
           " was built for:\n    PyTorch 2.2.0+cu121 with CUDA 1201 (you have 2.2.0+cpu)\n"
           "    Python  3.11.7 (you have 3.11.0)", ("2.2.0+cu121", "2.2.0+cpu")),
    Sample("binding", "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was"
           " built for:\n    PyTorch 2.0.1+cu118 with CUDA 1108 (you have 2.1.0+cu121)",
           ("2.0.1+cu118", "2.1.0+cu121")),
    Sample("binding", "decay's native library was built for torch 2.12.1, this is torch 2.13.0;"
           " rebuild it", ("2.12.1", "2.13.0")),
    Sample("binding", "decay was compiled with PyTorch 2.9.1, but you have 2.10.0",
           ("2.9.1", "2.10.0")),
    Sample("binding", "RuntimeError: Expected PyTorch version 1.4 but found version 1.5.",
           ("1.4", "1.5")),
    Sample("binding", "Skipping import of cpp extensions due to incompatible torch version"
           " 2.9.0+cu128 for torchao version 0.15.0", ("2.9.0+cu128",)),
    Sample("cuda-runtime", "OSError: libcudart.so.12: cannot open shared object file: No such file"
           " or directory", ("libcudart.so.12", "without CUDA")),
    Sample("cuda-runtime", "ImportError: libtorch_cuda.so: cannot open shared object file: No such"
           " file or directory", ("libtorch_cuda.so",)),
    Sample("cuda-runtime", "ImportError: libc10_cuda.so: cannot open shared object file: No such"
           " file or directory", ("libc10_cuda.so",)),
    Sample("torch-linked", "ImportError: libc10.so: cannot open shared object file: No such file or"
           " directory", ("libc10.so", "import torch")),
    Sample("driver", "ImportError: libcuda.so.1: cannot open shared object file: No such file or"
           " directory", ("nvidia-smi",)),
    Sample("module-init", "ImportError: dynamic module does not define module export function"
           " (PyInit__C)", ("PyInit__C", "torch.ops.load_library")),
    Sample("python-tag", "ImportError: libpython3.11.so.1.0: cannot open shared object file",
           ("libpython3.11.so.1.0", "3.12")),
    Sample("needed", "OSError: libsox.so.3: cannot open shared object file: No such file or"
           " directory", ("libsox.so.3",)),
    Sample("executable-stack", "ImportError: ext.so: cannot enable executable stack as shared"
           " object requires: Invalid argument"),
    Sample("python-tag", "ERROR: torch_scatter-2.1.2-cp39-cp39-linux_x86_64.whl is not a supported"
           " wheel on this platform.",
           ("torch_scatter-2.1.2-cp39-cp39-linux_x86_64.whl", "pip install torch-scatter")),
    Sample("python-tag", "hint: You're using CPython 3.13 (`cp313`), but `vllm` (v0.6) only has"
           " wheels with the following Python ABI tag: `cp312`"),
    Sample("python-tag", "ImportError: Python version mismatch: module was compiled for Python"
           " 3.10, but the interpreter version is incompatible: 3.12"),
    Sample("python-tag", "ModuleNotFoundError: No module named 'decay._C'", ("--no-binary decay",)),
    Sample("python-tag", "ModuleNotFoundError: No module named 'decay.ops._ext_cpu'"),
    Sample("python-tag", "ImportError: cannot import name '_C' from 'decay' (/v/site-packages/decay"
           "/__init__.py)", ("--no-binary decay",)),
    Sample("build-isolation", "  File \"<string>\", line 20, in <module>\n  ModuleNotFoundError: No"
           " module named 'torch'\n  [end of output]", ("--no-build-isolation",)),
    Sample("loads", "RuntimeError: operator torchvision::nms does not exist",
           ("torchvision", "pip install --upgrade torchvision torch==2.13.0", "torchproof doctor")),
    Sample("loads", "AttributeError: '_OpNamespace' 'torchaudio' object has no attribute 'forced'",
           ("torchaudio",)),
    Sample("driver", "RuntimeError: The NVIDIA driver on your system is too old (found version"
           " 11040)."),
    Sample("loads", "ImportError: /x/site-packages/decay/_C.so: file too short",
           ("cut off", "pip install --force-reinstall --no-deps decay")),
    Sample("loads", "OSError: /x/decay/_C.so: cannot read file data: Error 21", ("cut off",)),
    Sample("glibc", "ImportError: Error relocating /v/site-packages/decay/_C.so: __vsnprintf_chk:"
           " symbol not found", ("musl", "--no-binary decay")),
    Sample("glibc", "ImportError: Error loading shared library ld-linux-x86-64.so.2: No such file"
           " or directory (needed by /v/site-packages/decay/_C.so)", ("musl",)),
    Sample("loads", "OSError: op.so: undefined symbol: a_function_that_nobody_has",
           ("a_function_that_nobody_has",)),
)  # fmt: skip


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=lambda sample: f"{sample.rule}: {sample.text[-40:]}"
)
def test_a_message_gives_its_rule(
    site: Path, capsys: pytest.CaptureFixture[str], sample: Sample
) -> None:
    (found,) = answer(capsys, site, sample.text)["diagnoses"]
    assert found["rule"] == sample.rule
    written = f"{found['cause']} {found['fixes']}"
    assert [name for name in sample.names if name not in written] == []
    assert found["fixes"]
    assert "None" not in written
    commands = [fix["command"] for fix in found["fixes"]]
    reinstalls = [command for command in commands if "--force-reinstall" in command]
    # pip would put the newest torch in its place.
    assert [each for each in reinstalls if "--no-deps" not in each and "torch==" not in each] == []


def test_what_a_symbol_breaks_depends_on_the_torch_that_is_installed(
    toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    def rule(symbol: str, version: str, cuda: str | None = None) -> str:
        site = make_torch(toolchain, version, cuda)
        return str(answer(capsys, site, symbol)["diagnoses"][0]["rule"])

    late = "torch_call_dispatcher"  # in torch 2.10 first
    assert rule(late, "2.9.1") == "stable-target"
    assert rule(late, "2.13.0") == "torch-linked"
    assert rule("_ZN3c104cuda9SetDeviceEi", "2.13.0") == "cuda-runtime"
    assert rule("_ZN3c104cuda9SetDeviceEi", "2.13.0", "13.0") == "binding"
    assert rule("undefined symbol: cudaNewest", "2.13.0", "13.0") == "cuda-runtime"


@pytest.mark.parametrize(
    "message",
    [
        "ModuleNotFoundError: No module named 'torch._C'",
        "ModuleNotFoundError: No module named 'decay._collection'",
        "ModuleNotFoundError: No module named 'decay'",
        "ImportError: cannot import name '_center' from 'decay.core' (/v/decay/core.py)",
    ],
)
def test_a_module_that_is_no_library_of_an_extension_is_not_explained_as_one(
    site: Path, capsys: pytest.CaptureFixture[str], message: str
) -> None:
    assert not answer(capsys, site, message, code=1)["diagnoses"]


def test_every_rule_is_the_audits_or_of_no_binary() -> None:
    known = {rule.id for rule in RULES} | OF_NO_BINARY
    assert {symptom.rule for symptom in SYMPTOMS} <= known


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("_ZN2at6Tensor4goneEv", "binding"),
        ("aoti_torch_gone", "stable-target"),
        ("cudaGone", "cuda-runtime"),
        (OLD_STRING, "cxx11-abi"),
        ("PyGone_Function", "python-tag"),
        ("nobodys", "loads"),
    ],
)
def test_what_the_loader_reports_is_recognised(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str], name: str, rule: str
) -> None:
    library = toolchain.library("gone.so", CALL.format(name), "-Wl,-z,now")
    with pytest.raises(OSError, match="undefined symbol") as raised:
        ctypes.CDLL(str(library))
    assert answer(capsys, site, str(raised.value))["diagnoses"][0]["rule"] == rule


def test_a_message_comes_on_standard_input_too(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("a log\nCUDA error: no kernel image is available")
    )
    assert answer(capsys, site, "-")["diagnoses"][0]["rule"] == "cuda-architectures"


def test_the_command_prints_rule_cause_and_commands(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "operator torchvision::nms does not exist"
    assert torchproof(["doctor", "--environment", str(site), *text.split()]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("loads: The library with the operators of torchvision")
    assert "pip install --upgrade torchvision torch==2.13.0" in lines


def test_an_unknown_message_is_one_sentence_with_what_to_send(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["Segmentation fault", "--environment", str(site)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "no rule that torchproof knows" in line
    assert "send all of it" in line
    assert answer(capsys, site, "Segmentation fault", code=1)["diagnoses"] == []
    same = (
        "xFormers was built for:\n    PyTorch 2.6.0+cu118 with CUDA 1107 (you have 2.6.0+cu118)\n"
    )
    same += "    Python  3.10.17 (you have 3.10.11)"
    assert answer(capsys, site, same, code=1)["diagnoses"] == []


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["dist/op-1.0-py3-none-any.whl"], "dist/op-1.0-py3-none-any.whl does not exist"),
        (["gone.so"], "gone.so does not exist"),
        (["build/gone"], "build/gone does not exist"),
        ([" "], "the message is empty"),
        ([""], "the message is empty"),
    ],
)
def test_bad_input_is_one_sentence(
    site: Path, capsys: pytest.CaptureFixture[str], what: list[str], words: str
) -> None:
    assert main([*what, "--environment", str(site)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_folder_without_torch_and_a_file_that_is_no_library_are_one_sentence(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--environment", str(tmp_path / "nowhere")]) == 2
    assert "holds no torch" in capsys.readouterr().err
    text = tmp_path / "notes.txt"
    text.write_text("hello", encoding="utf-8")
    assert main([str(text), "--environment", str(site)]) == 2
    assert "no ELF library" in capsys.readouterr().err


def test_a_library_that_does_not_load_is_explained(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    source = CALL.format(THERE) + CALL.format("aoti_torch_gone")
    library = toolchain.library("decay.so", source, core)
    (found,) = answer(capsys, site, str(library), code=1)["libraries"]
    assert found["outcome"] == "fails"
    assert found["diagnosis"]["rule"] == "stable-target"
    assert "aoti_torch_gone" in found["diagnosis"]["cause"]
    assert "exports" in [broken["rule"] for broken in found["broken"]]
    assert main([str(library), "--environment", str(site)]) == 1
    assert "decay.so: fails" in capsys.readouterr().out


def test_a_library_of_the_package_that_is_out_of_reach_is_explained(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    helper = str(toolchain.stub("decay/lib/libhelper.so", ["helper"]))
    source = CALL.format(THERE) + CALL.format("helper")
    toolchain.library("decay/_C.so", source, core, helper)
    found = answer(capsys, site, str(toolchain.folder / "decay"), code=1)["libraries"]
    (diagnosis,) = (each["diagnosis"] for each in found if each["diagnosis"])
    assert diagnosis["rule"] == "rpath"
    assert "_C.so needs libhelper.so, which is in the same package" in diagnosis["cause"]
    assert "patchelf --add-rpath '$ORIGIN/lib' _C.so" in [
        fix["command"] for fix in diagnosis["fixes"]
    ]


def test_a_missing_library_and_a_version_of_the_system_are_explained(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    source = CALL.format(THERE) + CALL.format("odd")
    for soname, version, rule in (
        ("elsewhere/libcudart.so.12", None, "cuda-runtime"),
        ("elsewhere/libodd.so.1", None, "needed"),
        ("elsewhere/libstdc++.so.6", "CXXABI_1.3.99", "cxxabi"),
    ):
        other = str(toolchain.stub(soname, ["odd"], version))
        library = toolchain.library("decay.so", source, core, other)
        (found,) = answer(capsys, site, str(library), code=1)["libraries"]
        assert found["diagnosis"]["rule"] == rule


def wheel(library: Path, name: str) -> Path:
    """The library in a wheel."""
    path = library.parent / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(library, "decay/decay.so")
        archive.writestr(
            "decay-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: decay\nVersion: 1.0\n"
        )
    return path


def test_a_wheel_of_another_python_is_named(
    toolchain: Toolchain,
    site: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (site / "torch" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    library = toolchain.library("decay.so", CALL.format(THERE), core)
    assert main([str(wheel(library, "decay-1.0-cp27-cp27mu-win32.whl")), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["here"]["torch"]["path"] == str(site / "torch")
    assert [found["rule"] for found in document["diagnoses"]] == ["python-tag"]
    assert document["libraries"][0]["outcome"] == "loads"


def install(site: Path, name: str, *libraries: Path, requires: str = "torch") -> None:
    """A distribution with some libraries, as an installer leaves it."""
    folder = site / name
    folder.mkdir()
    for library in libraries:
        shutil.move(library, folder / library.name)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: {requires}\n"
    (about / "METADATA").write_text(head, encoding="utf-8")
    record = "".join(f"{name}/{library.name},,\n" for library in libraries)
    record += f"{about.name}/METADATA,,\n{about.name}/RECORD,,\n"
    (about / "RECORD").write_text(record, encoding="utf-8")


NATIVE = """
namespace c10 { int current_device(); }
extern "C" int device() { return c10::current_device(); }
"""


def test_everything_installed_is_listed_with_its_verdict(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    plain = CALL.format("odd")
    good = toolchain.library("good.so", CALL.format(THERE), core)
    install(site, "good", good, toolchain.library("helper.so", plain))
    install(site, "pinned", toolchain.library("_C.so", NATIVE, core), requires="torch==2.13.*")
    install(site, "old", toolchain.library("old.so", NATIVE, core), requires="torch==2.12.*")
    install(site, "plain", toolchain.library("plain.so", plain))
    found = answer(capsys, site)["libraries"]
    assert [(row["package"], row["name"], row["outcome"]) for row in found] == [
        ("good 1.0", "good/good.so", "loads"),
        ("old 1.0", "old/old.so", "unsafe"),
        ("pinned 1.0", "pinned/_C.so", "loads"),
    ]
    (old,) = (row["diagnosis"] for row in found if row["package"] == "old 1.0")
    assert old["rule"] == "binding"
    assert "torch 2.12" in old["cause"]

    source = CALL.format(THERE) + CALL.format("_ZN2at6Tensor4goneEv")
    install(site, "bad", toolchain.library("bad.so", source, core), requires="torch>=2")
    (bad,) = (row for row in answer(capsys, site, code=1)["libraries"] if row["outcome"] == "fails")
    assert (bad["package"], bad["name"]) == ("bad 1.0", "bad/bad.so")
    assert bad["diagnosis"]["rule"] == "binding"
    commands = [fix["command"] for fix in bad["diagnosis"]["fixes"]]
    assert "pip install --upgrade bad torch==2.13.0" in commands


def test_of_a_library_for_each_torch_the_one_for_this_torch_counts(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    gone = CALL.format(THERE) + CALL.format("_ZN2at6Tensor4goneEv")
    libraries = (
        toolchain.library("libmany_pytorch_2.12.1.so", gone, core),
        toolchain.library("libmany_pytorch_2.13.0.so", NATIVE, core),
    )
    install(site, "many", *libraries)
    found = answer(capsys, site)["libraries"]
    assert [(row["name"], row["outcome"]) for row in found] == [
        ("many/libmany_pytorch_2.12.1.so", "not run"),
        ("many/libmany_pytorch_2.13.0.so", "loads"),
    ]
    assert "torch 2.12" in found[0]["reason"]
    # Without one for this torch, none of them is what it should be.
    install(site, "few", toolchain.library("libfew_pytorch_2.12.1.so", gone, core))
    (few,) = (row for row in answer(capsys, site, code=1)["libraries"] if "few" in row["name"])
    assert few["outcome"] == "fails"


def test_what_setup_py_install_leaves_without_a_list_of_files_is_listed(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    install(site, "old", toolchain.library("old.so", NATIVE, core))
    shutil.move(toolchain.library("old_cpp.so", NATIVE, core), site / "old_cpp.so")
    shutil.move(toolchain.library("other.so", NATIVE, core), site / "other.so")
    about = (site / "old-1.0.dist-info").rename(site / "old-1.0-py3.11.egg-info")
    (about / "METADATA").rename(about / "PKG-INFO")
    (about / "RECORD").unlink()
    (about / "SOURCES.txt").write_text("setup.py\nold.cpp\n", encoding="utf-8")
    (about / "top_level.txt").write_text("old\nold_cpp\n", encoding="utf-8")
    found = answer(capsys, site)["libraries"]
    assert [row["name"] for row in found] == ["old/old.so", "old_cpp.so"]


def test_a_library_that_is_cut_off_is_listed(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    for name, requires in (("alone", "torch"), ("other", "numpy")):
        library = toolchain.library("_C.so", CALL.format(THERE), core)
        library.write_bytes(library.read_bytes()[:3000])
        install(site, name, library, requires=requires)
    good = toolchain.library("good.so", CALL.format(THERE), core)
    cut = toolchain.library("cut.so", CALL.format(THERE), core)
    cut.write_bytes(cut.read_bytes()[:3000])
    hollow = toolchain.library("hollow.so", CALL.format(THERE), core)
    hollow.write_bytes(b"")
    install(site, "beside", good, cut, hollow)
    found = answer(capsys, site, code=1)["libraries"]
    assert [(row["package"], row["outcome"]) for row in found] == [
        ("alone 1.0", "fails"),
        ("beside 1.0", "loads"),
        ("beside 1.0", "fails"),
        ("beside 1.0", "fails"),
    ]
    assert "_C.so is no readable shared library" in found[0]["reason"]
    assert "cut.so is no readable shared library" in found[2]["reason"]
    assert "hollow.so is no readable shared library" in found[3]["reason"]


def test_the_package_that_is_named_is_of_the_environment(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    install(site, "decay", toolchain.library("_C.so", CALL.format(THERE), core))
    about = site / "decay-1.0.dist-info" / "METADATA"
    about.write_text("Metadata-Version: 2.1\nName: torch-decay\nVersion: 1.0\n", encoding="utf-8")
    message = f"ImportError: {site}/decay/_C.so: undefined symbol: _ZNK3c105Error4whatEv"
    (found,) = answer(capsys, site, message)["diagnoses"]
    commands = [fix["command"] for fix in found["fixes"]]
    assert "pip install --upgrade torch-decay torch==2.13.0" in commands


def test_an_editable_install_is_listed_with_the_library_beside_its_sources(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    source = CALL.format(THERE) + CALL.format("_ZN2at6Tensor4goneEv")
    built = toolchain.library("my work/decay/_C.so", source, core)
    for made in ("build/lib", ".nox/a"):
        (built.parents[1] / made).mkdir(parents=True)
        shutil.copy(built, built.parents[1] / made)
    install(site, "decay")
    about = {"dir_info": {"editable": True}, "url": built.parents[1].as_uri()}
    (site / "decay-1.0.dist-info" / "direct_url.json").write_text(json.dumps(about))
    (found,) = answer(capsys, site, code=1)["libraries"]
    assert (found["package"], found["name"]) == ("decay 1.0", "decay/_C.so")
    assert found["outcome"] == "fails"


@pytest.mark.parametrize(
    ("file", "content", "word"),
    [
        ("METADATA", b"Metadata-Version: 2.1\nName: odd\nVersion: 1.0\nAuthor: \xe9\n", "utf-8"),
        ("RECORD", b"odd/_C.so,sha256=0,many\nodd-1.0.dist-info/RECORD,,\n", "many"),
        ("RECORD", b"odd/_C.so,\xe9,\n", "utf-8"),
    ],
)
def test_a_damaged_distribution_does_not_hide_the_others(
    toolchain: Toolchain,
    site: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    content: bytes,
    word: str,
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    for name in ("odd", "sound"):
        install(site, name, toolchain.library("_C.so", CALL.format(THERE), core))
    (site / "odd-1.0.dist-info" / file).write_bytes(content)
    found = answer(capsys, site)["libraries"]
    (odd,) = (row for row in found if row["outcome"] == "not run")
    assert word in odd["reason"]
    assert "install it again" in odd["reason"]
    assert [row["package"] for row in found if row["outcome"] == "loads"] == ["sound 1.0"]
    main(["--environment", str(site.parents[2])])
    assert "1 libraries link against torch, 0 of them" in capsys.readouterr().out


def test_a_damaged_distribution_does_not_end_a_diagnosis(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "odd")
    (site / "odd-1.0.dist-info" / "RECORD").write_bytes(b"odd/_C.so,sha256=0,many\n")
    monkeypatch.syspath_prepend(str(site))
    text = "/x/site-packages/decay/_C.so: undefined symbol: _ZN3c104goneEv"
    assert main(["--environment", str(site.parents[2]), text]) == 0
    assert "decay" in capsys.readouterr().out


@pytest.mark.parametrize("requires", ["torch ><2", "torch==2.*"])
def test_a_requirement_that_names_no_release_is_no_pin(
    toolchain: Toolchain, site: Path, capsys: pytest.CaptureFixture[str], requires: str
) -> None:
    core = str(site / "torch" / "lib" / "libtorch_cpu.so")
    install(site, "odd", toolchain.library("_C.so", NATIVE, core), requires=requires)
    (odd,) = answer(capsys, site)["libraries"]
    assert odd["outcome"] == "unsafe"
    assert "nothing says which torch" in odd["reason"]


def test_what_is_here_is_printed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--environment", str(site.parents[2])]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == "torch 2.13.0+cpu without CUDA, _GLIBCXX_USE_CXX11_ABI=1"
    assert lines["Python"] == "3.12"
    assert {"libc", "libstdc++", "driver"} <= set(lines)


def test_without_an_option_it_is_the_running_python(site: Path) -> None:
    (site / "torch" / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    code += "from torchproof.doctor.__main__ import main; main(['cudaFree', '--json'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    here = json.loads(done.stdout)["here"]
    assert here["torch"]["version"] == "2.13.0+cpu", done.stderr
    assert here["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
