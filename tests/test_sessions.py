"""What noxfile.py's sessions refuse, and how."""

from __future__ import annotations

import subprocess
import sys

from torchproof import config


def test_a_foreign_project_that_there_is_not_is_refused_before_anything_is_installed() -> None:
    nox = (sys.executable, "-m", "nox", "--no-venv", "--no-install", "--session", "foreign")
    run = subprocess.run(
        [*nox, "--", "nothing-1.0"], cwd=config.ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "no project of torchproof/examples: nothing-1.0" in run.stderr
    assert "torch_scatter-2.1.2" in run.stderr
