"""The installed prefix: it can be moved, and what is taken out of it leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torchproof.conda.install import install, link
from torchproof.conda.solving import detect, solve

if TYPE_CHECKING:
    from conftest import Context

USE = """
import json, torch, lltm
rnn = lltm.LLTM(4, 3)
h, c = rnn(torch.ones(2, 4), (torch.zeros(2, 3), torch.zeros(2, 3)))
h.sum().backward()
print(json.dumps({"torch": torch.__version__, "file": lltm.__file__, "shape": list(h.shape)}))
"""


def use(python: Path) -> dict[str, object]:
    # Off the tree: the source's lltm must not be what is imported.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ended = subprocess.run(
        [python, "-c", USE], capture_output=True, text=True, cwd="/", env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    report: dict[str, object] = json.loads(ended.stdout)
    return report


def contents(prefix: Path) -> tuple[set[str], set[str]]:
    """The files and the folders below it."""
    files, folders = set(), set()
    for folder, subfolders, names in os.walk(prefix):
        inside = os.path.relpath(folder, prefix)
        files |= {f"{inside}/{name}" for name in names}
        folders |= {f"{inside}/{name}" for name in subfolders}
    return files, folders


def test_a_moved_prefix_works_where_it_is(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two torches, and the CUDA package where one was built.
    for number in (0, -1):
        environment = context.environments[number]
        prefix, moved = tmp_path / f"{number}", tmp_path / f"{number}-moved"
        with monkeypatch.context() as patch:
            if environment["driver"]:
                patch.setenv("CONDA_OVERRIDE_CUDA", environment["driver"])
            install(context.channels, environment["specs"], prefix, context.cache)
        prefix.rename(moved)
        report = use(moved / "bin" / "python")
        assert str(report["file"]).startswith(str(moved))
        assert str(report["torch"]).split("+")[0] == environment["torch"]


def test_the_solver_takes_the_cuda_package_where_there_is_a_driver(context: Context) -> None:
    devices = {e["build"].split("_")[0] for e in context.environments if e["driver"]}
    if not devices:
        pytest.skip("not run: no CUDA package was built: there is no nvcc")
    (built,) = {p["build"].split("_")[0] for p in context.packages if "cuda" in p["build"]}
    assert devices == {built}


def test_the_solver_takes_the_cpu_package_where_there_is_no_driver(context: Context) -> None:
    if any("__cuda" in str(package) for package in detect()):
        pytest.skip("not run: this machine has a driver")
    assert {e["build"].split("_")[0] for e in context.environments if not e["driver"]} == {"cpu"}


def test_removing_the_package_leaves_nothing_behind(context: Context, tmp_path: Path) -> None:
    environment = context.environments[0]
    beside = [f"pytorch {environment['torch']}.*", f"python {environment['python']}.*"]
    prefix = tmp_path / "prefix"
    without = install(context.channels, beside, prefix, context.cache)
    before_files, before_folders = contents(prefix)
    added = solve(context.channels, ["lltm", *beside])
    link(added.records, prefix, context.cache)
    use(prefix / "bin" / "python")
    assert any("lltm" in name for name in contents(prefix)[0] - before_files)
    link(without.solution.records, prefix, context.cache)
    after_files, after_folders = contents(prefix)
    # Running Python compiles its own and torch's modules beside them; lltm's are to go with lltm.
    left = {name for name in after_files - before_files if not name.endswith(".pyc")}
    left |= {name for name in after_files - before_files if "lltm" in name}
    assert left == set()
    assert {f for f in after_folders - before_folders if not f.endswith("__pycache__")} == set()
    assert not [name for name in after_folders if "lltm" in name]


def test_installed_beside_two_torches_and_two_pythons(context: Context) -> None:
    torches = {environment["torch"] for environment in context.environments}
    pythons = {environment["python"] for environment in context.environments}
    if len(pythons) == 1:
        pytest.skip("not run: this machine has one CPython that can be packaged")
    assert (len(torches), len(pythons)) == (2, 2)
