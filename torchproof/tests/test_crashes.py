"""What a fuzz once found stays found; and the fuzz finds a bug that is there."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from targets import TARGETS

CRASHES = Path(__file__).parent / "crashes"
READERS = Path(__file__).parents[1] / "fuzz" / "readers.py"
KEPT = sorted(path.relative_to(CRASHES) for path in CRASHES.glob("*/*"))


@pytest.mark.parametrize("kept", KEPT, ids=str)
def test_an_input_that_crashed_a_reader_is_read_or_refused(kept: Path, tmp_path: Path) -> None:
    target = TARGETS[kept.parts[0]]
    target.read((CRASHES / kept).read_bytes(), tmp_path / target.file)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_reader_reads_what_it_is_seeded_with(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for seed in target.seeds():
        target.read(seed, tmp_path / target.file)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("not run: atheris, which has wheels for few CPythons, is not installed")
    command = [sys.executable, str(READERS), name, "--planted", "--seconds", "60"]
    done = subprocess.run(
        [*command, "--crashes", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, done.stderr[-2000:]
    assert len(list((tmp_path / name).glob("crash-*"))) == 1, done.stderr[-2000:]
