"""Two builds of one commit are the same file, byte for byte."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conda_package_streaming.extract import extract
from rattler_build import Package
from torchproof.conda.packages import sources

if TYPE_CHECKING:
    from conftest import Context

ROOT = Path(__file__).parents[2]


def contents(package: Path, folder: Path) -> dict[str, str]:
    extract(str(package), str(folder))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_two_builds_of_one_commit_are_the_same_file(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rattler-build's own rebuild: from the package's recipe, at its SOURCE_DATE_EPOCH."""
    (package,) = context.packages
    first = Path(package["file"])
    # It unpacks the recipe into a folder of TMPDIR, and the recipe's source is the folder above.
    source = tmp_path / "source"
    for name in sources():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, target)
    monkeypatch.setenv("TMPDIR", str(source))
    again = Package.from_file(first).rebuild(test="skip", output_dir=tmp_path / "again")
    # The parts of a package are named after it.
    second = again.rebuilt_path.rename(tmp_path / "again" / first.name)
    one, two = contents(first, tmp_path / "1"), contents(second, tmp_path / "2")
    assert {name for name in one | two if one.get(name) != two.get(name)} == set()
    assert again.is_identical
