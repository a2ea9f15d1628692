"""How far tests are is read from the log, while another process writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from torchproof.rows.watched import watched

TESTS = """
import pathlib, time
import pytest

@pytest.mark.parametrize("n", range(100))
def test_one(n):
    while n == 99 and not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


def test_the_share_is_what_pytest_has_printed(tmp_path: Path) -> None:
    file, log = tmp_path / "test_some.py", tmp_path / "tests.log"
    file.write_text(TESTS)
    seen, told = [], threading.Event()

    def tell(percent: int) -> None:
        seen.append(percent)
        told.set()

    command = [sys.executable, "-m", "pytest", "-q", str(file)]
    environment = {**os.environ, "COLUMNS": "80"}
    with log.open("wb") as output, watched(log, tell, every=0.05):
        tests = subprocess.Popen(command, stdout=output, cwd=tmp_path, env=environment)
        try:
            assert told.wait(60)
        finally:
            (tmp_path / "go").touch()
            tests.wait(60)
    assert tests.returncode == 0
    assert seen[0] == 72


def test_a_log_that_is_not_there_is_no_share(tmp_path: Path) -> None:
    seen: list[int] = []
    with watched(tmp_path / "absent.log", seen.append, every=0.01):
        threading.Event().wait(0.1)
    assert seen == []
