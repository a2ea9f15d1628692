"""What a person meets: the command line, its exit codes and words, and each kind of artifact."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conda_package_streaming.create import conda_builder
from torchproof.audit import RULES, ArtifactError, Policy, audit
from torchproof.audit.__main__ import main
from torchproof.audit.artifact import opened
from torchproof.config import ROOT

from torchproof import config

if TYPE_CHECKING:
    from torchproof.audit import LibraryReport

    from .conftest import Toolchain

SOURCE = """
extern "C" int aoti_torch_device_type_cpu();
static int device = aoti_torch_device_type_cpu();
"""


@pytest.fixture
def library(toolchain: Toolchain) -> Path:
    """A library that breaks no rule."""
    torch = toolchain.stub("libtorch_cpu.so", ["aoti_torch_device_type_cpu"])
    return toolchain.library("op.so", SOURCE, str(torch))


def wheel(library: Path, name: str, metadata: str = "") -> Path:
    """The library in a wheel."""
    path = library.parent / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(library, "op/op.so")
        head = "Metadata-Version: 2.1\nName: op\nVersion: 1.0\n"
        archive.writestr("op-1.0.dist-info/METADATA", head + metadata)
    return path


def conda(library: Path) -> Path:
    """The library in a conda package."""
    with conda_builder("op-1.0-0", library.parent) as package:
        package.add(library, "lib/op.so")
        package.add(library.parent / "op.so.cpp", "info/about.cpp")
    return library.parent / "op-1.0-0.conda"


def test_a_project_declares_what_its_libraries_link_and_export(
    toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = toolchain.stub("libtorch_cpu.so", ["aoti_torch_device_type_cpu"])
    strange = toolchain.stub("libstrange.so.1", ["strange"])
    source = 'extern "C" int strange(); extern "C" int used() { return strange(); }'
    path = toolchain.library("op.so", SOURCE + source, str(torch), str(strange))

    def failed(*options: str) -> set[str]:
        main([str(path), "--json", *options])
        (report,) = json.loads(capsys.readouterr().out)
        (found,) = report["libraries"]
        return {each["rule"] for each in found["findings"] if each["status"] == "failed"}

    assert failed() >= {"needed", "exports"}
    own = replace(config.audit(), needed=("libstrange.*",), exports=("us*",))
    monkeypatch.setattr(config, "audit", lambda: own)
    assert failed("--needed", "libother.so") & {"needed", "exports"} == set()


def test_every_kind_of_artifact_opens(library: Path, tmp_path: Path) -> None:
    (tmp_path / "build" / "lib").mkdir(parents=True)
    (tmp_path / "build" / "lib" / "op.so").write_bytes(library.read_bytes())
    built = wheel(library, "op-1.0-py3-none-linux_x86_64.whl")
    names = {
        library: "op.so",
        built: "op/op.so",
        conda(library): "lib/op.so",
        tmp_path / "build": "lib/op.so",
    }
    for artifact, name in names.items():
        report = audit(artifact)
        assert [found.name for found in report.libraries] == [name]
        assert report.ok
        assert (report.sha256 is None) == artifact.is_dir()


def test_a_library_without_python_is_no_fault_of_a_wheel_that_has_a_module_too(
    library: Path, toolchain: Toolchain
) -> None:
    declared = 'extern "C" int PyModule_Create2();\n'
    module = f'{declared}extern "C" int PyInit_ext() {{ return PyModule_Create2(); }}'
    extension = toolchain.library("ext.cpython-311-x86_64-linux-gnu.so", module)
    alone = wheel(library, "op-1.0-cp311-cp311-linux_x86_64.whl")
    assert "python-tag" in audit(alone).failed_rules()
    with zipfile.ZipFile(alone, "a") as archive:
        archive.write(extension, f"op/{extension.name}")
    found = {each.name: each for each in audit(alone).libraries}
    assert "python-tag" not in {result.rule for result in found["op/op.so"].failed}


def test_a_wheel_for_every_python_may_have_a_module_for_each(toolchain: Toolchain) -> None:
    declared = 'extern "C" int PyModule_Create2();\n'
    module = f'{declared}extern "C" int PyInit_op() {{ return PyModule_Create2(); }}'
    built = [toolchain.library(f"op.cpython-3{n}-x86_64-linux-gnu.so", module) for n in (11, 12)]
    both = toolchain.folder / "op-1.0-py3-none-linux_x86_64.whl"
    failed = []
    for each in built:
        with zipfile.ZipFile(both, "a") as archive:
            archive.write(each, f"op/{each.name}")
        failed.append([file.name for file in audit(both).libraries if "python-tag" in rules(file)])
    assert failed == [[f"op/{built[0].name}"], []]


def platforms(artifact: Path) -> list[str]:
    """What the rule of a wheel's platform says of each library."""
    libraries = audit(artifact).libraries
    return [f.status for each in libraries for f in each.findings if f.rule == "platform-tag"]


def test_a_wheel_may_serve_a_platform_with_each_of_its_libraries(library: Path) -> None:
    image = bytearray(library.read_bytes())
    image[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    built = wheel(library, "op-1.0-py3-none-linux_x86_64.linux_aarch64.whl")
    assert platforms(built) == ["failed"]
    with zipfile.ZipFile(built, "a") as archive:
        archive.writestr("op/other.so", bytes(image))
    assert platforms(built) == ["passed", "passed"]
    assert platforms(built.rename(library.parent / "op-1.0-py3-none-linux_aarch64.whl")) == [
        "failed",
        "passed",
    ]


@pytest.mark.parametrize("soname", ["libc.musl-x86_64.so.1", "libc.so"])  # Alpine's, musl's own
def test_a_library_of_musl_is_for_musllinux(toolchain: Toolchain, soname: str) -> None:
    musl = toolchain.stub(soname, ["only_in_musl"])
    source = 'extern "C" int only_in_musl();\nstatic int used = only_in_musl();\n'
    library = toolchain.library("op.so", source, "-nostdlib", str(musl))
    assert platforms(wheel(library, "op-1.0-py3-none-musllinux_1_2_x86_64.whl")) == ["passed"]
    assert platforms(wheel(library, "op-1.0-py3-none-manylinux_2_28_x86_64.whl")) == ["failed"]
    (report,) = audit(library).libraries
    assert (report.facts.manylinux, report.facts.oldest_systems) == ("linux_x86_64", ())
    assert "needed" not in rules(report)


def test_one_elf_machine_is_both_of_the_32_bit_arms(library: Path) -> None:
    image = bytearray(library.read_bytes())
    image[18:20] = (40).to_bytes(2, "little")  # e_machine: EM_ARM
    library.write_bytes(image)
    assert platforms(wheel(library, "op-1.0-py3-none-linux_armv6l.whl")) == ["passed"]
    assert platforms(wheel(library, "op-1.0-py3-none-linux_armv7l.whl")) == ["passed"]


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(8), b"", LFS])
def test_a_library_that_cannot_be_read_is_named_beside_the_others(
    library: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    built = wheel(library, "op-1.0-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(built, "a") as archive:
        archive.writestr("op/damaged.so", content)
        archive.writestr("op/op.so.json", "")
        archive.writestr("op/linked.so", "INPUT(-lop)\n")  # a script of the linker's
    assert main([str(built)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("op/damaged.so") == 1
    assert "op/op.so" in printed
    assert ", 1 unreadable" in printed


def test_json_is_the_twin_of_the_report(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(library), "--target", "2.10", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["policy"]["target"] == "2.10"
    (found,) = report["libraries"]
    assert [finding["rule"] for finding in found["findings"]] == [rule.id for rule in RULES]
    assert found["facts"]["binding"] == "stable"


def test_a_failed_rule_is_explained_and_exits_1(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(library), "--binding", "native"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    rule = next(rule for rule in RULES if rule.id == "binding")
    assert rule.why in out
    assert rule.fix in out


def test_what_is_not_declared_is_not_run(library: Path) -> None:
    findings = {f.rule: f.status for f in audit(library, Policy()).libraries[0].findings}
    undeclared = {
        "binding",
        "stable-target",
        "glibc",
        "cuda-runtime",
        "cuda-architectures",
        "loads",
    }
    assert {findings[rule] for rule in undeclared} == {"not run"}


def test_the_module_runs_as_a_command(library: Path) -> None:
    command = [sys.executable, "-m", "torchproof.audit", str(library)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "stable" in done.stdout


def test_bad_input_is_one_sentence_and_exits_2(
    tmp_path: Path, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, empty, broken = tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "op-1.whl"
    damaged = tmp_path / "damaged-1-0.conda"
    with zipfile.ZipFile(damaged, "w") as archive:
        archive.writestr("pkg-damaged-1-0.tar.zst", b"no zstd")
    text.write_text("hello")
    empty.mkdir()
    broken.write_text("no zip")
    for arguments, words in (
        ([str(tmp_path / "nowhere.so")], "does not exist; name a .so"),
        ([str(text)], "is no ELF library, wheel, .conda package or folder"),
        ([str(empty)], "holds no ELF shared library"),
        ([str(broken)], "is no well-formed wheel"),
        ([str(damaged)], "is no well-formed conda package"),
        ([str(library), "--against", str(empty)], "holds no torch"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    "option",
    [
        ["--ceilings", "glib=2.28"],
        ["--ceilings", "glibc=abc"],
        ["--ceilings", "glibc=2.28,cxxabi=1.3.x"],
        ["--cuda-architectures", "hopper"],
        ["--torch", "foo"],
        ["--torch", "2.13t"],
        ["--target", "x"],
        ["--cuda", "zz"],
        ["--platform", "zz"],
        ["--platform", "win_amd64"],
        ["--platform", "manylinux_2_28"],
        ["--python", "3.11"],
    ],
    ids=" ".join,
)
def test_a_mistyped_option_is_refused(
    option: list[str], library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(library), *option])
    assert stopped.value.code == 2
    assert option[1] in capsys.readouterr().err


def test_a_file_that_an_option_has_taken_is_said_to_stand_before_it(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--needed", "libgomp.so.1", str(library)])
    assert stopped.value.code == 2
    assert "before an option of several values or after --" in capsys.readouterr().err
    assert main(["--needed", "libgomp.so.1", "--", str(library)]) == 0


def test_a_folder_of_wheels_is_told_how_to_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "decay-1.0-py3-none-any.whl").touch()
    assert main([str(tmp_path)]) == 2
    assert f"no ELF shared library; name its wheels, {tmp_path}/*.whl" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[""], ["op.so", ""], ["op.so", "--against", ""]], ids=str)
def test_an_empty_name_is_not_the_working_directory(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "the name is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "ceilings", ["", ",", "glibc", "glibc=", "=2.28", "glib=2.28", "glibc=2.28,cxxabi", "2.28"]
)
def test_malformed_ceilings_are_refused(
    ceilings: str, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(library), "--ceilings", ceilings])
    assert stopped.value.code == 2
    assert f"{ceilings!r}: write NAME=VERSION,... with names out of cxxabi, glibc, glibcxx" in (
        capsys.readouterr().err
    )


def test_a_ceiling_is_given_by_its_name(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(library), "--json", "--ceilings", "cxxabi=1.3.11,glibc=2.28,"])
    (report,) = json.loads(capsys.readouterr().out)
    assert report["policy"]["ceilings"] == {"glibc": "2.28", "glibcxx": None, "cxxabi": "1.3.11"}


def test_a_torch_is_named_by_its_release_or_its_series(
    library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ("2.13", "2.13.0"):
        main([str(library), "--json", "--torch", given, "--cuda", "cpu"])
        (report,) = json.loads(capsys.readouterr().out)
        assert (report["policy"]["torch"], report["policy"]["cuda"]) == ("2.13", "cpu")


@pytest.mark.parametrize("architectures", ["8.0,9.0a+PTX", "8.0;9.0a+PTX", ",8.0;;9.0a+PTX;"])
def test_architectures_are_listed_as_torch_does_or_with_commas(
    architectures: str, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(library), "--json", "--cuda-architectures", architectures])
    (report,) = json.loads(capsys.readouterr().out)
    assert report["policy"]["cuda_architectures"] == ["8.0", "9.0a+PTX"]


CP311 = "op-1.0-cp311-cp311-linux_x86_64.whl"
NEVER = 'python_version < "3"'
PINNED = "Requires-Dist: torch==2.11.0\n"


@pytest.mark.parametrize(
    ("name", "metadata", "torch"),
    [
        ("op-1.0+torch2.12-cp311-cp311-linux_x86_64.whl", "", "2.12"),
        ("op-1.0-cp311-cp311-linux_x86_64.whl", "Requires-Dist: torch==2.11.0\n", "2.11"),
        ("op-1.0-cp311-cp311-linux_x86_64.whl", "Requires-Dist: torch===2.11.0\n", "2.11"),
        ("op-1.0-cp311-cp311-linux_x86_64.whl", "Requires-Dist: torch==2.11+cpu\n", "2.11"),
        ("op-1.0-cp311-cp311-linux_x86_64.whl", "Requires-Dist: torch>=2.10\n", None),
        ("op-1.0-cp311-cp311-linux_x86_64.whl", "Requires-Dist: torchvision==0.20\n", None),
        (CP311, "Requires-Dist: Torch==2.11.0\n", "2.11"),
        (CP311, "Requires-Dist: torch==2.11.*\n", "2.11"),
        (CP311, "Requires-Dist: torch==2\n", "2.0"),
        (CP311, "Requires-Dist: torch==2.*\n", None),
        (CP311, "Requires-Dist: torch==2.11.0+cu130\n", "2.11"),
        (CP311, "Requires-Dist: torch<2.12.0,>=2.11.0\n", "2.11"),
        (CP311, "Requires-Dist: torch>=2.11,<=2.11.1\n", "2.11"),
        (CP311, "Requires-Dist: torch~=2.11.0\n", "2.11"),
        (CP311, "Requires-Dist: torch~=2.11\n", None),
        (CP311, "Requires-Dist: torch>=2.11,<=2.12\n", None),
        (CP311, "Requires-Dist: torch>=2.11,!=2.12.*\n", None),
        (CP311, "Requires-Dist: torch<2.12\n", None),
        (CP311, "Requires-Dist: torch===nightly\n", None),
        (CP311, 'Requires-Dist: torch==2.11.0; extra == "dev"\n', None),
        (CP311, f"Requires-Dist: torch==2.10.0; {NEVER}\n{PINNED}", "2.11"),
    ],
)
def test_a_wheel_that_names_its_torch_is_believed(
    library: Path, name: str, metadata: str, torch: str | None
) -> None:
    with opened(wheel(library, name, metadata)) as artifact:
        assert artifact.torch == torch


@pytest.mark.parametrize("kind", [".conda", ".tar.bz2"])
@pytest.mark.parametrize(
    ("depends", "torch"),
    [
        ("pytorch >=2.11.0,<2.12.0a0", "2.11"),
        ("libtorch 2.11.*", "2.11"),
        ("pytorch 2.11.0 cpu_generic_py311_0", "2.11"),
        ("pytorch-cpu =2.11", "2.11"),
        ("pytorch >=2.11", None),
        ("pytorch 2.11|2.12", None),
        ("pytorch", None),
        ("torchvision 0.20.*", None),
    ],
)
def test_a_conda_package_that_names_its_torch_is_believed(
    library: Path, kind: str, depends: str, torch: str | None
) -> None:
    index = library.parent / "index.json"
    index.write_text(json.dumps({"depends": ["python", depends]}), encoding="utf-8")
    path = library.parent / f"op-1.0-0{kind}"
    if kind == ".conda":
        with conda_builder("op-1.0-0", library.parent) as package:
            package.add(index, "info/index.json")
            package.add(library, "lib/op.so")
    else:
        with tarfile.open(path, "w:bz2") as package:
            package.add(index, "info/index.json")
            package.add(library, "lib/op.so")
    with opened(path) as artifact:
        assert artifact.torch == torch


def test_torch_itself_bundles_nothing(library: Path) -> None:
    torch = library.parent / "libtorch_cpu.so"
    assert "bundled-torch" not in audit(torch).failed_rules()


@pytest.mark.parametrize("place", ["torch/lib", "lib/python3.11/site-packages/torch/lib", "lib"])
def test_torchs_own_libraries_are_where_they_belong(library: Path, place: str) -> None:
    torch = library.parent / "environment"
    (torch / place).mkdir(parents=True)
    for name in ("libtorch_cpu.so", "libtorch_global_deps.so", "libshm.so"):
        shutil.copy(library, torch / place / name)
    assert "bundled-torch" not in audit(torch).failed_rules()
    (torch / "op.libs").mkdir()
    shutil.copy(library, torch / "op.libs" / "libc10-0123abcd.so")
    failed = [each.name for each in audit(torch).libraries if "bundled-torch" in rules(each)]
    assert failed == ["op.libs/libc10-0123abcd.so"]


def test_a_library_that_its_package_brings_along_has_no_binding(
    toolchain: Toolchain, library: Path
) -> None:
    plain = toolchain.library("libplain.so", "int nothing;\n")
    built = wheel(library, "op-1.0-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(built, "a") as archive:
        archive.write(plain, "op.libs/libplain.so")
    assert audit(built, Policy(binding="stable")).ok
    assert audit(plain, Policy(binding="stable")).failed_rules() == ("binding",)


def rules(library: LibraryReport) -> set[str]:
    """The rules that it breaks."""
    return {finding.rule for finding in library.failed}


def test_a_library_inside_that_is_damaged_is_named(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:200])
    with pytest.raises(ArtifactError, match=r"op/op\.so"):
        audit(wheel(library, "op-1.0-py3-none-linux_x86_64.whl"))


def test_the_verdict_on_a_torch_and_its_reason_are_printed(
    library: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    toolchain.stub("torch/lib/libtorch_cpu.so", ["another_function"])
    version = toolchain.folder / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0'\ncuda = None\n", encoding="utf-8")
    main([str(library), "--against", str(version.parent)])
    words = " ".join(capsys.readouterr().out.split())
    assert "torch verdict reason" in words
    assert "2.13.0 fails" in words
    assert "aoti_torch_device_type_cpu" in words.partition("2.13.0 fails")[2]
