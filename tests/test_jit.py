"""``lltm.jit.load``: built when asked, incrementally, and never hanging on a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from installed_copy import SECONDS, InstalledCopy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.subprocess

LOAD = """
import lltm, torch
backend = lltm.jit.load()
arguments = [torch.randn(*s, dtype=torch.float64) for s in ((3, 4), (15, 9), (15,), (3, 5), (3, 5))]
expected = lltm.reference.cell(*arguments)
for name in ("jit", "aten"):
    actual = lltm.lltm_cell(*arguments, backend=name)
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a, e)
print(backend.name)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> InstalledCopy:
    """Built once; the tests of this file go on from there, in order."""
    copy = InstalledCopy.make(tmp_path_factory.mktemp("jit"))
    load(copy)
    return copy


def load(copy: InstalledCopy) -> str:
    result = copy.run("-c", LOAD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split()[-1] == "jit"
    return result.stderr


def folder(copy: InstalledCopy) -> Path:
    (build,) = copy.cache.iterdir()
    return build


def times(copy: InstalledCopy) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder(copy).glob("*.o")}


def test_nothing_is_compiled_at_import(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    code = "import sys, lltm; assert 'torch.utils.cpp_extension' not in sys.modules"
    assert copy.run("-c", code).returncode == 0
    assert not list(copy.cache.iterdir())


def test_a_second_load_compiles_nothing(copy: InstalledCopy) -> None:
    before = times(copy)
    assert before
    load(copy)
    assert times(copy) == before


def test_a_change_compiles_only_what_it_touches(copy: InstalledCopy) -> None:
    before = times(copy)
    changed = copy.package / "csrc" / "cpu" / "kernels.cpp"
    changed.write_text(changed.read_text(encoding="utf-8") + "// touched\n", encoding="utf-8")
    load(copy)
    after = times(copy)
    assert {name for name in after if after[name] != before[name]} == {"kernels.o"}


def test_the_lock_of_a_killed_build_is_taken_over(copy: InstalledCopy) -> None:
    lock = folder(copy) / "lock"
    lock.touch()
    assert f"taking over {lock}" in load(copy)
    assert not lock.exists()


def test_a_build_that_is_killed_leaves_nothing_to_wait_for(copy: InstalledCopy) -> None:
    changed = copy.package / "csrc" / "native" / "composed.cpp"
    changed.write_text(changed.read_text(encoding="utf-8") + "// again\n", encoding="utf-8")
    process = copy.start("-c", LOAD)
    lock = folder(copy) / "lock"
    while not lock.exists():
        assert process.poll() is None, process.communicate()
        os.sched_yield()
    process.kill()
    process.communicate()
    assert f"taking over {lock}" in load(copy)


def test_a_living_build_is_waited_for_with_a_message(copy: InstalledCopy) -> None:
    with FileLock(folder(copy) / "lltm.lock"):
        process = copy.start("-c", LOAD)
        assert process.stderr is not None
        assert "another process is building" in process.stderr.readline()
        assert process.poll() is None
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert out.split()[-1] == "jit"


def test_a_compiler_that_fails_is_an_import_error(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    (copy.package / "csrc" / "native" / "binding.cpp").write_text("broken\n", encoding="utf-8")
    for name in ("autograd.cpp", "composed.cpp"):
        (copy.package / "csrc" / "native" / name).write_text("", encoding="utf-8")
    result = copy.run("-c", "import lltm; lltm.jit.load()")
    assert result.returncode == 1
    message = result.stderr.strip()
    assert "ImportError: lltm.jit.load() could not build for torch" in message
