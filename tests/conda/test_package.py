"""The packages: the same bytes from the same commit, and no trace of where they were built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conda_package_streaming.extract import extract

from matrix.conda import build, rendered

if TYPE_CHECKING:
    from conftest import Context

ROOT = Path(__file__).parents[2]
# What conda builds in, and what an unreplaced prefix looks like.
TRACES = (b"rattler-build_", b"_h_env_placehold", b"_build_env", b"/bld/")
# rattler-build writes into these when, and in which folder, it built. Everything that is installed
# must be the same; info/paths.json holds the hash of each of those files.
DATED = {"info/index.json", "info/recipe/rendered_recipe.yaml"}


def contents(package: Path, folder: Path) -> dict[str, str]:
    extract(str(package), str(folder))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_builds_of_one_commit_are_byte_identical(context: Context, tmp_path: Path) -> None:
    first = context.packages["lltm"]
    wanted = next(
        output
        for output in (rendered.output(v) for v in rendered.render("linux-64", [context.variants]))
        if first.stem == f"{output.name}-{output.version}-{output.build}"
    )
    shop = build.Workshop(
        channels=(context.parts,),
        output=tmp_path / "elsewhere" / "packages",
        variants=context.variants,
        log=tmp_path / "log",
    )
    second = build.PyRattlerBuild().build(shop, wanted).path
    one, two = contents(first, tmp_path / "1"), contents(second, tmp_path / "2")
    assert {name for name in one | two if one.get(name) != two.get(name)} <= DATED
    assert one["info/paths.json"] == two["info/paths.json"]
    indexes = [json.loads((tmp_path / n / "info" / "index.json").read_text()) for n in "12"]
    assert {**indexes[0], "timestamp": 0} == {**indexes[1], "timestamp": 0}


@pytest.mark.parametrize("name", ["lltm", "lltm-native", "lltm-tests"])
def test_a_package_holds_no_path_of_the_build_machine(
    context: Context, tmp_path: Path, name: str
) -> None:
    extract(str(context.packages[name]), str(tmp_path))
    traces = (str(ROOT).encode(), str(Path.home()).encode() + b"/", *TRACES)
    found = {
        f"{path.relative_to(tmp_path)}: {trace.decode()}"
        for path in tmp_path.rglob("*")
        # info/ says from which channels it was built, and is not installed.
        if path.is_file() and path.relative_to(tmp_path).parts[0] != "info"
        for trace in traces
        if trace in path.read_bytes()
    }
    assert found == set()
