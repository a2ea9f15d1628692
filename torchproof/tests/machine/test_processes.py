"""Every way a command ends has its sentence, and nothing it started outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torchproof.machine.processes import Processes, Stopped


def run(tmp_path: Path, program: str, limit: float = 30.0) -> str:
    ended = Processes().run(
        [sys.executable, "-c", program], log=tmp_path / "log", limit=limit, cwd=tmp_path
    )
    return "" if ended.ok else ended.explain(limit)


CHILD = """
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "300"])
pathlib.Path("pids").write_text(f"{child.pid}\\n")
time.sleep(300)
"""


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    assert run(tmp_path, "print('output')") == ""
    assert "output" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    ],
)
def test_every_end_has_its_sentence(tmp_path: Path, program: str, sentence: str) -> None:
    assert run(tmp_path, program) == sentence


def test_a_limit_ends_the_command_and_its_children(tmp_path: Path) -> None:
    pids, limit = tmp_path / "pids", 0.5
    while not (pids.exists() and pids.read_text().endswith("\n")):  # it has a child by then
        limit *= 2
        assert run(tmp_path, CHILD, limit=limit) == f"exceeded its limit of {limit:.0f} s"
    assert left(tmp_path) == []


def alive(pid: int) -> bool:
    # A killed child whose parent is gone may stay as a zombie where no init reaps it.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends as it is read
        return False


def test_stop_ends_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    processes = Processes()
    raised: list[type[BaseException]] = []
    program = "import pathlib, time; pathlib.Path('up').touch(); time.sleep(60)"

    def work() -> None:
        try:
            command = [sys.executable, "-c", program]
            processes.run(command, log=tmp_path / "log", limit=60, cwd=tmp_path)
        except Stopped:
            raised.append(Stopped)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "up").exists():
        time.sleep(0.01)
    processes.stop()
    thread.join(timeout=10)
    assert raised == [Stopped]
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


def test_a_command_is_no_worker_of_the_pytest_around_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORKER", "WORKER_COUNT", "TESTRUNUID"):
        monkeypatch.setenv(f"PYTEST_XDIST_{name}", "gw0")
    program = "import os; assert not [name for name in os.environ if 'XDIST' in name]"
    ended = Processes().run(
        [sys.executable, "-c", program], log=tmp_path / "log", limit=30, cwd=tmp_path
    )
    assert ended.ok, (tmp_path / "log").read_text()


# ninja gives each compiler a process group of its own, and the compiler's driver starts another.
NINJA = "setsid sh -c 'sleep 300 & echo $! >> pids; wait' & echo $! >> pids"
TOOL = """
import signal
import subprocess
import sys
from pathlib import Path
from torchproof.machine.processes import Processes
here = Path(sys.argv[1])
Processes().run(["sh", "-c", sys.argv[2]], log=here / "log", limit=300, cwd=here)
"""


def left(folder: Path) -> list[int]:
    """The processes that are still there 5 s later."""
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize(
    "ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda s: s.name
)
def test_nothing_outlives_a_tool_that_is_killed(tmp_path: Path, ending: signal.Signals) -> None:
    hear = ["env", "--default-signal=INT,HUP,TERM"]
    tool = subprocess.Popen(
        [*hear, sys.executable, "-c", TOOL, str(tmp_path), f"{NINJA}; sleep 300"],
        stderr=subprocess.DEVNULL,
    )
    pids = tmp_path / "pids"
    deadline = time.monotonic() + 60
    while not (pids.exists() and pids.read_text().count("\n") == 2):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    tool.send_signal(ending)
    assert tool.wait(timeout=60) != 0
    assert left(tmp_path) == []


def test_nothing_outlives_a_command_that_ends(tmp_path: Path) -> None:
    command = ["sh", "-c", f"{NINJA}; while [ $(wc -l < pids) -lt 2 ]; do sleep 0.02; done; exit 3"]
    ended = Processes().run(command, log=tmp_path / "log", limit=60, cwd=tmp_path)
    assert ended.code == 3
    assert left(tmp_path) == []


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = Processes().run(["no-such-program"], log=tmp_path / "log", limit=60, cwd=tmp_path)
    assert not ended.ok
    assert "no-such-program: No such file or directory" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("module", ["torchproof", "torchproof.conda", "torchproof.grid"])
def test_an_interrupt_among_the_imports_is_one_line(tmp_path: Path, module: str) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr == "interrupted\n"
