"""The local channel: parts are kept while what they are made of stays, wheels become packages."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rattler_build import Package, RattlerBuildError
from torchproof.conda import local, package_builder, repackage, run, targets
from torchproof.conda.channel import Channel, ChannelFailed, Part
from torchproof.conda.targets import Target
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine, Nvcc, find_nvcc
from torchproof.machine.lockfiles import Lock, parse

from torchproof import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PY312 = Target(Interpreter(Path("python3.12"), "3.12.1"), Path("/usr/local/python"), "2.13.0")


def wheel(folder: Path, metadata: str = "", name: str = "some_thing") -> Path:
    path, about = folder / f"{name}-1.2-py3-none-any.whl", f"{name}-1.2.dist-info"
    title = name.replace("_", "-")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(
            f"{about}/METADATA",
            f"Metadata-Version: 2.1\nName: {title}\nVersion: 1.2\nSummary: x\n{metadata}\n",
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return path


def channel(folder: Path) -> Channel:
    return Channel(folder / "channel", folder / "scratch", folder / "log")


def part(channel: Channel, name: str, key: str, made: list[str]) -> Part:
    def make() -> list[Path]:
        made.append(name)
        path = channel.folder / "linux-64" / f"{name}-{key}.conda"
        path.write_bytes(b"package")
        return [path]

    return Part(name, key, make)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ValueError("RECORD has no hashes"),
        RattlerBuildError("x"),
    ],
)
def test_a_wheel_that_cannot_be_packed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*of: object) -> Path:
        raise error

    monkeypatch.setattr(repackage, "download", lambda target, folder: [wheel(tmp_path)])
    monkeypatch.setattr(repackage, "package", fail)
    with pytest.raises(ChannelFailed, match=r"some_thing-.* cannot be made a package") as raised:
        channel(tmp_path).wheels(PY312, "2.36").make()
    # It has to reach the process that tells the user.
    assert str(error) in str(pickle.loads(pickle.dumps(raised.value)))


def test_what_is_downloaded_has_the_hashes_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    wheels = [wheel(source), wheel(source, "Requires-Dist: some-thing", name="torch")]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels]
    text = "some-thing==1.2 --hash=sha256:{}\ntorch===1.2 --hash=sha256:{}\n".format(*digests)
    monkeypatch.setattr(repackage, "locked", lambda torch: Lock.of(parse(text)))
    monkeypatch.setattr(repackage, "requirements", lambda: ())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    python = Interpreter(Path(sys.executable), platform.python_version())
    here = Target(python, tmp_path, "1.2")
    downloaded = repackage.download(here, tmp_path / "downloaded")
    assert [path.name for path in downloaded] == [path.name for path in wheels]
    wheel(source, "Keywords: another")
    with pytest.raises(repackage.NoWheel, match=r"pip cannot download for torch 1\.2 .* Got "):
        repackage.download(here, tmp_path / "downloaded")


def test_too_little_disk_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FREE_BYTES", 1 << 60)
    with pytest.raises(ChannelFailed, match=r"torchproof conda may need .* GiB: free some space"):
        run.check_disk()


def test_a_part_is_kept_until_its_key_changes(tmp_path: Path) -> None:
    here, made = channel(tmp_path), []
    first = part(here, "gcc", "1", made)
    assert here.missing([first]) == [first]
    here.make(first)
    assert here.missing([first]) == []
    changed = part(here, "gcc", "2", made)
    assert here.missing([changed]) == [changed]
    here.make(changed)
    assert [path.name for path in here.folder.glob("*/*.conda")] == ["gcc-2.conda"]


def test_a_part_that_is_wanted_no_more_leaves_the_channel(tmp_path: Path) -> None:
    here = channel(tmp_path)
    old, new = part(here, "torch 2.12", "1", []), part(here, "torch 2.13", "1", [])
    here.make(old)
    here.forget_others([new])
    here.make(new)
    assert [path.name for path in here.folder.glob("*/*.conda")] == ["torch 2.13-1.conda"]


def test_the_channels_key_changes_with_a_part(tmp_path: Path) -> None:
    here = channel(tmp_path)
    here.make(part(here, "gcc", "1", []))
    before = here.key
    here.make(part(here, "gcc", "1", []))
    assert here.key == before
    here.make(part(here, "gcc", "2", []))
    assert here.key != before


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_part_whose_file_is_damaged_is_made_again(tmp_path: Path, damage: str) -> None:
    here = channel(tmp_path)
    whole = part(here, "gcc", "1", [])
    here.make(whole)
    file = here.folder / "linux-64" / "gcc-1.conda"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"pack")
    assert here.missing([whole]) == [whole]


def test_a_part_whose_record_is_damaged_is_made_again(
    tmp_path: Path, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    here = channel(tmp_path)
    whole = part(here, "gcc", "1", [])
    here.make(whole)
    for damage in damages(here.state(whole), 120):
        if here.missing([whole]):
            here.forget_others([whole])
            here.make(whole)
            here.state(whole).write_bytes(damage)
        assert [path.name for path in here.folder.glob("*/*.conda")] == ["gcc-1.conda"]


def test_a_package_that_no_record_names_leaves_the_channel(tmp_path: Path) -> None:
    """The solver might choose it: a killed run has left it, or its part's record is damaged."""
    here = channel(tmp_path)
    old, new = part(here, "gcc", "1", []), part(here, "gcc", "2", [])
    here.make(old)
    here.state(old).write_bytes(b"\xff")
    here.forget_others([new])
    here.make(new)
    assert [path.name for path in here.folder.glob("*/*.conda")] == ["gcc-2.conda"]


def indexed(here: Channel) -> set[str]:
    """The packages that the channel's index names."""
    return {
        name
        for path in here.folder.glob("*/repodata.json")
        for kind in ("packages", "packages.conda")
        for name in json.loads(path.read_text()).get(kind, ())
    }


@pytest.mark.parametrize("left", [b"", b"{", b"{}", b"\xff", None], ids=repr)
def test_an_index_that_a_killed_run_left_is_written_again(
    tmp_path: Path, left: bytes | None
) -> None:
    here = channel(tmp_path)

    def make() -> list[Path]:
        (here.folder / "linux-64").mkdir(parents=True, exist_ok=True)
        return [repackage.package(wheel(tmp_path), PY312, tmp_path / "root", here.folder, "2.36")]

    here.make(Part("wheels", "1", make))
    here.index()
    index = here.folder / "linux-64" / "repodata.json"
    if left is None:
        index.unlink()
    else:
        index.write_bytes(left)
    here.index()
    assert indexed(here) == {"some-thing-1.2-py312_0.conda"}


def test_an_index_of_the_same_parts_is_kept(tmp_path: Path) -> None:
    here = channel(tmp_path)
    (here.folder / "linux-64").mkdir(parents=True)
    here.index()
    index = here.folder / "linux-64" / "repodata.json"
    before = index.stat().st_ino
    here.index()
    assert index.stat().st_ino == before


def test_a_part_that_fails_is_not_taken_for_made(tmp_path: Path) -> None:
    here = channel(tmp_path)

    def fail() -> list[Path]:
        raise OSError("no space left on device")

    broken = Part("gcc", "1", fail)
    with pytest.raises(OSError, match="no space"):
        here.make(broken)
    assert here.missing([broken]) == [broken]


def test_a_wheel_becomes_a_package_with_its_requirements(tmp_path: Path) -> None:
    metadata = (
        "Requires-Dist: typing-extensions>=4.10\n"
        'Requires-Dist: tomli; python_version < "3.11"\n'
        "Requires-Dist: torch\n"
        "Requires-Dist: nvidia-cublas-cu12==12.8\n"
    )
    (tmp_path / "channel" / "linux-64").mkdir(parents=True)
    path = repackage.package(
        wheel(tmp_path, metadata), PY312, tmp_path / "root", tmp_path / "channel", "2.36"
    )
    package = Package.from_file(path)
    assert (package.name, package.version, package.build_string) == ("some-thing", "1.2", "py312_0")
    assert package.depends == [
        "python 3.12.*",
        "python_abi 3.12.* *_cp312",
        "typing_extensions >=4.10",
        "pytorch",
    ]
    assert "lib/python3.12/site-packages/some_thing/__init__.py" in package.files


def test_the_channel_holds_what_the_recipe_tests_with() -> None:
    assert {"pytest >=8", "hypothesis", "numpy"} <= set(repackage.requirements())
    assert not [name for name in repackage.requirements() if name.startswith("decay")]


def machine(*versions: str) -> Machine:
    pythons = tuple(Interpreter(Path(f"/usr/local/{v}/bin/python"), v) for v in versions)
    return Machine(pythons[0], pythons, (), None, gpu=False)


def test_the_oldest_torch_goes_beside_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "prefix_of", lambda python: python.path.parents[1])
    matrix = config.load()
    first, second = targets.targets(matrix, machine("3.11.7", "3.13.0", "3.8.1"))
    assert (first.series, first.torch) == ("3.11", matrix.headers.version)
    assert (second.series, second.torch) == ("3.13", matrix.supporting("stable")[0].version)


def test_a_python_without_headers_cannot_be_packaged(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3.14"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho {tmp_path}\n")
    python.chmod(0o755)
    assert targets.prefix_of(Interpreter(python, "3.14.7")) is None
    (tmp_path / "include" / "python3.14").mkdir(parents=True)
    assert targets.prefix_of(Interpreter(python, "3.14.7")) == tmp_path


def test_one_python_still_has_both_torches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "prefix_of", lambda python: python.path.parents[1])
    first, second = targets.targets(config.load(), machine("3.11.7"))
    assert first.series == second.series == "3.11"
    assert first.torch != second.torch


def test_a_distributions_python_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "prefix_of", lambda python: None)
    with pytest.raises(targets.NoInterpreter, match="live in a prefix of its own, not in /usr"):
        targets.targets(config.load(), machine("3.11.2"))


def test_a_python_without_a_wheel_of_the_headers_torch_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "prefix_of", lambda python: python.path.parents[1])
    matrix = config.load()
    newest = replace(matrix.torch[-1], pythons=("3.12", "3.13"))
    stable = replace(matrix.stable, headers=newest.series)
    matrix = replace(matrix, torch=(*matrix.torch[:-1], newest), stable=stable)
    with pytest.raises(targets.NoInterpreter, match=r"must be one of 3\.12, 3\.13, for which"):
        targets.targets(matrix, machine("3.11.7"))


def test_no_compiler_is_told_with_what_to_install() -> None:
    with pytest.raises(local.NoCompiler, match="install one"):
        local.toolchain(machine("3.11.7"), cuda=True)


def test_the_compiler_of_the_channel_is_the_machines_own() -> None:
    found = CompilerFound("g++", "12.2.0", Path("/usr/bin/g++-12"))
    base = machine("3.11.7")
    nvcc = Nvcc("13.0", "13.0.88", Path("/usr/local/cuda"))
    here = Machine(base.running, base.pythons, (found,), found, gpu=False, nvcc=nvcc)
    tools = local.toolchain(here, cuda=True)
    assert (tools.cxx.name, tools.cc.name, tools.version) == ("g++-12", "gcc-12", "12.2.0")
    assert tools.nvcc == nvcc
    assert local.toolchain(here, cuda=False).nvcc is None, "a project without CUDA needs no nvcc"


@pytest.mark.parametrize("name", ["conda-build", "rattler-build"])
def test_a_tool_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        package_builder.BuildFailed, match=f"no {name} on PATH; install it with conda"
    ):
        package_builder.tool(name)


def test_a_recipe_without_cuda_has_the_variant_without(tmp_path: Path) -> None:
    context = package_builder.BuildContext((), tmp_path, tmp_path / "here.yaml", tmp_path, tmp_path)
    torch = Target(PY312.python, PY312.prefix, config.load().headers.version)
    tools = local.Toolchain(Path("gcc"), Path("g++"), "12.2.0", "2.36", nvcc=None)
    for made in package_builder.local_variants(tools, [torch], context.variants):
        chosen = package_builder.alone(context, made)
        assert chosen.read_text(encoding="utf-8") == 'cuda_compiler_version:\n  - "None"\n'


def test_nvcc_is_asked_for_its_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$1" in\n'
        '--version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;\n'
        "*) echo '#$ TOP=/usr/local/cuda-13.0' >&2 ;;\nesac\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_nvcc() == Nvcc("13.0", "13.0.88", Path("/usr/local/cuda-13.0"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    assert find_nvcc() is None


def test_what_is_packed_is_emptied_and_not_deleted(tmp_path: Path) -> None:
    packed, unpacked = tmp_path / "torch.whl", tmp_path / "torch"
    (unpacked / "lib").mkdir(parents=True)
    library, small = unpacked / "lib" / "libtorch.so", unpacked / "small.py"
    for path in (packed, library):
        path.write_bytes(bytes(repackage.LARGE + 1))
    small.write_text("1")
    (unpacked / "link.so").symlink_to(library)
    repackage.forget(packed, unpacked)
    assert [path.stat().st_size for path in (packed, library, small)] == [0, 0, 1]
