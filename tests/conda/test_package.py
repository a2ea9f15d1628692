"""The packages: what they say of themselves, and no trace of where they were built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conda_package_streaming.extract import extract

if TYPE_CHECKING:
    from conftest import Context

ROOT = Path(__file__).parents[2]
# What conda builds in, and what an unreplaced prefix looks like.
TRACES = (b"rattler-build_", b"_h_env_placehold", b"host_env_placehold", b"_build_env", b"/bld/")


@pytest.fixture(scope="module")
def unpacked(context: Context, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every package that was built, by name and build string."""
    found = {}
    for package in context.packages:
        key = f"{package['name']} {package['build']}"
        found[key] = tmp_path_factory.mktemp("package")
        extract(package["file"], str(found[key]))
    assert found
    return found


def test_no_package_holds_a_path_of_the_build_machine(unpacked: dict[str, Path]) -> None:
    traces = (str(ROOT).encode(), str(Path.home()).encode() + b"/", *TRACES)
    found = {
        f"{name}: {path.relative_to(folder)}: {trace.decode()}"
        for name, folder in unpacked.items()
        for path in folder.rglob("*")
        # info/ says from which channels it was built, and is not installed.
        if path.is_file() and path.relative_to(folder).parts[0] != "info"
        for trace in traces
        if trace in path.read_bytes()
    }
    assert found == set()


def test_no_package_is_bound_to_the_python_it_was_built_with(unpacked: dict[str, Path]) -> None:
    for name, folder in unpacked.items():
        assert not list(folder.rglob("*.pyc")), name
        index = json.loads((folder / "info" / "index.json").read_text(encoding="utf-8"))
        assert not [d for d in index["depends"] if d.startswith("python_abi")], name


def test_every_package_carries_its_licence_and_says_what_it_is(unpacked: dict[str, Path]) -> None:
    for name, folder in unpacked.items():
        licence = (folder / "info" / "licenses" / "LICENSE").read_text(encoding="utf-8")
        assert licence == (ROOT / "LICENSE").read_text(encoding="utf-8"), name
        about = json.loads((folder / "info" / "about.json").read_text(encoding="utf-8"))
        assert about["license"] == "BSD-3-Clause", name
        assert about["summary"], name


def test_what_builds_against_lltm_is_pinned_to_its_minor_release(
    unpacked: dict[str, Path],
) -> None:
    for name, folder in unpacked.items():
        exports = folder / "info" / "run_exports.json"
        if name.startswith("lltm-tests "):
            assert not exports.exists(), name
            continue
        (export,) = json.loads(exports.read_text(encoding="utf-8"))["weak"]
        assert export.startswith(f"{name.split()[0]} >=0."), export
        assert ",<0." in export


def test_the_version_of_what_is_installed_is_the_packages(unpacked: dict[str, Path]) -> None:
    """conda-build warns where they differ, as by a mark for CUDA."""
    for name, folder in unpacked.items():
        index = json.loads((folder / "info" / "index.json").read_text(encoding="utf-8"))
        installed = [path.name for path in folder.rglob("lltm-*.dist-info")]
        wanted = [] if name.startswith("lltm-tests ") else [f"lltm-{index['version']}.dist-info"]
        assert installed == wanted, name


def test_every_cuda_package_needs_a_driver_and_a_cpu_package_none(
    unpacked: dict[str, Path],
) -> None:
    for name, folder in unpacked.items():
        index = json.loads((folder / "info" / "index.json").read_text(encoding="utf-8"))
        if name.startswith("lltm cuda"):
            assert "__cuda *" in index["depends"]
            assert index["constrains"] == [f"__cuda >={name.split('cuda')[1][:2]}"]
        else:
            assert not [d for d in index["depends"] if d.startswith("__cuda")], name


def test_the_tests_are_pinned_to_the_build_of_their_own_device(unpacked: dict[str, Path]) -> None:
    builds = {name.split("_")[0]: name.split()[1] for name in unpacked if name.startswith("lltm ")}
    for name, folder in unpacked.items():
        if name.startswith("lltm-tests "):
            index = json.loads((folder / "info" / "index.json").read_text(encoding="utf-8"))
            device = name.split()[1].split("_")[0]
            assert f"lltm =={index['version']} {builds[f'lltm {device}']}" in index["depends"]
