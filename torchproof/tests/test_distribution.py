"""The source distribution of the tool itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DISTRIBUTION = Path(__file__).parents[1]


@pytest.mark.skipif(
    not (DISTRIBUTION.parent / ".git").exists(),
    reason="not run: this is no checkout, which would say what belongs to a distribution",
)
def test_it_has_every_file_that_its_tests_need(tmp_path: Path) -> None:
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=DISTRIBUTION, text=True)
    tracked = set(listed.split("\0")) - {""}
    clone = tmp_path / "clone"
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(DISTRIBUTION / name, clone / name)
    made = "from setuptools.build_meta import build_sdist; build_sdist('dist')"
    subprocess.run([sys.executable, "-c", made], cwd=clone, check=True, capture_output=True)
    (packed,) = (clone / "dist").glob("*.tar.gz")
    shutil.unpack_archive(packed, tmp_path, filter="data")
    unpacked = tmp_path / packed.name.removesuffix(".tar.gz")
    assert [name for name in sorted(tracked) if not (unpacked / name).is_file()] == []
