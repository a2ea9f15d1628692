"""What noxfile.py's sessions refuse, and how."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from torchproof import config

READ = ("matrix.toml", "noxfile.py", "pyproject.toml", "torchproof/src/torchproof/data/facts.toml")


def refusal(folder: Path, *arguments: str) -> str:
    """What a session prints that ends before it has installed anything."""
    nox = (sys.executable, "-m", "nox", "--no-venv", "--no-install", "--session")
    run = subprocess.run(
        [*nox, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    return run.stderr


def test_a_foreign_project_that_there_is_not_is_refused_before_anything_is_installed() -> None:
    said = refusal(config.ROOT, "foreign", "--", "nothing-1.0")
    assert "no project of torchproof/examples: nothing-1.0" in said
    assert "torch_scatter-2.1.2" in said


def test_a_wheel_that_there_is_not_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(config.ROOT / name, tmp_path / name)
    (tmp_path / "dist").mkdir()
    said = refusal(tmp_path, "wheel-tests")
    assert "there is no wheel of lltm in dist/; make one with `nox -s wheel`" in said
