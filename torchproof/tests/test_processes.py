"""A command's end is told in words, and nothing it started outlives it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from torchproof.processes import Processes, Stopped


def run(tmp_path: Path, program: str, limit: float = 30.0) -> str:
    ended = Processes().run(
        [sys.executable, "-c", program], log=tmp_path / "log", limit=limit, cwd=tmp_path
    )
    return "" if ended.ok else ended.explain(limit)


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    assert run(tmp_path, "print('said')") == ""
    assert "said" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    ],
)
def test_an_end_is_told_in_words(tmp_path: Path, program: str, told: str) -> None:
    assert run(tmp_path, program) == told


def test_a_limit_ends_the_command_and_its_children(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    program = (
        "import subprocess, sys, pathlib, time;"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        "pathlib.Path('pid').write_text(str(p.pid)); time.sleep(60)"
    )
    assert run(tmp_path, program, limit=2.0) == "passed its limit of 2 s"
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    # A killed child whose parent is gone may stay as a zombie where no init reaps it.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_stop_ends_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    processes = Processes()
    told: list[type[BaseException]] = []

    def work() -> None:
        try:
            processes.run(["sleep", "60"], log=tmp_path / "log", limit=60, cwd=tmp_path)
        except Stopped:
            told.append(Stopped)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "log").exists() or not processes.live:
        time.sleep(0.01)
    processes.stop()
    thread.join(timeout=10)
    assert told == [Stopped]
    with pytest.raises(Stopped):
        processes.run(["true"], log=tmp_path / "log", limit=1, cwd=tmp_path)


def test_the_environment_reaches_the_command(tmp_path: Path) -> None:
    ended = Processes().run(
        [sys.executable, "-c", "import os; print(os.environ['WORD'])"],
        log=tmp_path / "log",
        limit=30,
        cwd=tmp_path,
        env={"WORD": "heard"},
    )
    assert ended.ok
    assert "heard" in (tmp_path / "log").read_text()
    assert "WORD" not in os.environ
