"""What happens when a cell is first called: it is compiled once, or says why it is not."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from installed_copy import SECONDS, InstalledCopy
from test_jit import NO_FOLDER, NO_ROOM, READ_ONLY
from torch import Tensor

from lltm import _library, cells
from lltm._compile import compiler, unavailable_reason

pytestmark = pytest.mark.subprocess

CALL = """
import torch
from lltm import cells
torch.manual_seed(0)
ours, theirs = cells.RNN(3, 5), torch.nn.RNN(3, 5)
ours.load_state_dict(theirs.state_dict())
x = torch.randn(4, 2, 3)
for a, e in zip(ours(x), theirs(x), strict=True):
    torch.testing.assert_close(a, e)
print(cells.prepare(ours.cell), cells.prepare(ours.cell))
"""

TRACING = """
import atexit, threading
import torch
from lltm import cells

cells.define(lambda z, state: torch.tanh(z[0]) + state[0], gates=1, states=1)
running = threading.enumerate()
atexit.register(lambda: print(threading.enumerate() == running))
"""
EXPORTING = """
import torch
from lltm import cells
torch.manual_seed(0)
gru, x = cells.GRU(3, 5), torch.randn(4, 2, 3)
torch.export.save(torch.export.export(gru, (x,)), "gru.pt2")
torch.save((x, gru(x)[0].detach()), "expected.pt")
"""
LOADING = """
import torch
from lltm import cells
cells.prepare(cells.formulas.GRU)
x, expected = torch.load("expected.pt")
torch.testing.assert_close(torch.export.load("gru.pt2").module()(x)[0], expected)
"""
SAVING = """
import torch
from lltm import cells
torch.manual_seed(0)
gru, x = cells.GRU(3, 5), torch.randn(4, 2, 3)
torch.save((gru, x, gru(x)[0].detach()), "module.pt")
"""
COMPILING = """
import torch
from lltm import cells
gru, x, expected = torch.load("module.pt", weights_only=False)
compiled = torch.compile(gru, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(x)[0], expected)
"""
CARRIED = """
import torch
from lltm import cells
from lltm.cells import formulas

torch.manual_seed(0)
x = torch.randn(4, 2, 3)
for ours, theirs in (
    (cells.LSTM(3, 5), torch.nn.LSTM(3, 5)),
    (cells.GRU(3, 5), torch.nn.GRU(3, 5)),
):
    ours.load_state_dict(theirs.state_dict())
    print(cells.prepare(ours.cell))
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])

slstm = cells.SLSTM(3, 5)
print(cells.prepare(slstm.cell))
states = [torch.zeros(2, 5)] * 4
for step in x:
    z = torch.cat((states[0], step), 1) @ slstm.weight_l0.T + slstm.bias_l0
    states = formulas.slstm(z.chunk(4, 1), states)
torch.testing.assert_close(slstm(x)[0][-1], states[0])
"""
CARRIES_CELLS = pytest.mark.skipif(
    not _library.build().cells,
    reason="not run: this build has no kernels of other cells; LLTM_CELLS=1 makes them",
)
MOST_BYTES = 2 << 20


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> InstalledCopy:
    return InstalledCopy.make(tmp_path_factory.mktemp("cells"))


@pytest.fixture
def fresh(copy: InstalledCopy, tmp_path: Path) -> InstalledCopy:
    """The same with a cache that has nothing."""
    fresh = InstalledCopy(copy.site, tmp_path / "cache")
    fresh.cache.mkdir()
    return fresh


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    return out.strip(), err


def called(copy: InstalledCopy, program: str = CALL, **environment: str) -> tuple[str, str]:
    done = copy.run("-c", program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.usefixtures("compiler")
def test_processes_that_start_together_compile_once(copy: InstalledCopy, tmp_path: Path) -> None:
    both = [ended(process) for process in [copy.start("-c", CALL) for _ in range(2)]]
    assert [out for out, _ in both] == ["True True", "True True"]
    compiling = [err.count("lltm.cells: compiling rnn_tanh for this processor") for _, err in both]
    assert sorted(compiling) == [0, 1]
    out, err = called(copy)
    assert out == "True True"
    assert "lltm.cells" not in err

    (library,) = copy.cache.glob("*/*.so")
    library.write_bytes(library.read_bytes()[:1000])  # would end the process with SIGBUS
    out, err = called(copy)
    assert out == "True True"
    assert err.count("lltm.cells: compiling rnn_tanh for this processor") == 1

    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho no space left\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    out, err = called(copy, CXX=str(compiler))
    assert out == "False False"
    (line,) = [line for line in err.splitlines() if "several times slower" in line]
    (log,) = copy.cache.glob("*/compiler.log")
    assert line.endswith(f"than compiled: no space left (all that the compiler said is in {log})")
    assert "c++ -std=c++17" in log.read_text(encoding="utf-8")


@pytest.mark.usefixtures("compiler")
def test_the_cache_may_be_named_from_the_working_directory(copy: InstalledCopy) -> None:
    out, _ = called(copy, TORCH_EXTENSIONS_DIR='a "folder" here')
    assert out == "True True"
    assert list((copy.site / 'a "folder" here').glob("*/*.so"))


@pytest.mark.usefixtures("compiler")
def test_what_one_process_exports_another_loads(copy: InstalledCopy) -> None:
    """Once the cell's ops are registered there, of which the file has the names alone."""
    called(copy, EXPORTING)
    called(copy, LOADING)


@pytest.mark.usefixtures("compiler")
def test_what_one_process_saves_another_compiles(copy: InstalledCopy) -> None:
    called(copy, SAVING)
    called(copy, COMPILING)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", ["<lambda>", "_", "lltm"])
def test_a_step_may_have_any_name(name: str) -> None:
    """In C++ too, where a name without letters was that of something else."""

    def step(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        return torch.tanh(z[0]) * 0.75

    step.__name__ = name
    assert cells.prepare(cells.define(step, gates=1, states=1))


def test_without_a_compiler_the_reference_runs_after_one_warning(copy: InstalledCopy) -> None:
    two = CALL + "cells.LSTM(3, 5)(x)\n"
    out, err = called(copy, two, CXX="no-such-compiler")
    assert out == "False False"
    assert err.count("lltm.cells computes") == 1
    assert "<string>:8: RuntimeWarning: lltm.cells computes rnn_tanh step by step" in err
    if unavailable_reason() is None:
        assert "there is no C++ compiler (no-such-compiler); install one, such as with" in err


@pytest.mark.usefixtures("compiler")
def test_without_a_compiler_a_finished_build_is_used(copy: InstalledCopy, tmp_path: Path) -> None:
    """That of a cluster's login node, say, whose home directory the other nodes share."""
    made = tmp_path / "c++"
    made.write_text(f'#!/bin/sh\nexec {shlex.join(compiler())} "$@"\n', encoding="utf-8")
    made.chmod(0o755)
    called(copy, CXX=str(made))
    made.unlink()
    out, err = called(copy, CXX=str(made))
    assert out == "True True"
    assert "lltm.cells" not in err


@pytest.mark.skipif(
    _library.build().binding != "stable",
    reason="not run: a native wheel leaves the LLTM of lltm.cells to be compiled",
)
def test_the_wheel_has_the_kernels_of_the_lltm(copy: InstalledCopy) -> None:
    program = """
import torch, lltm
ours, expected = lltm.cells.LLTM(3, 5), lltm.LLTMSequence(3, 5)
expected.load_state_dict(ours.state_dict())
x = torch.randn(4, 2, 3)
print(lltm.cells.prepare(ours.cell), torch.equal(ours(x)[0], expected(x)[0]))
"""
    out, err = called(copy, program, CXX="no-such-compiler")
    assert out == "True True"
    assert not err


@CARRIES_CELLS
def test_the_wheel_has_the_kernels_that_its_description_names(copy: InstalledCopy) -> None:
    out, err = called(copy, CARRIED, CXX="no-such-compiler")
    assert out.split() == ["True"] * 3
    assert not err


@CARRIES_CELLS
def test_the_library_of_the_cells_is_small_and_damage_to_it_is_named(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    (library,) = (copy.package / "lib").glob("*lltm_cells*")
    assert library.stat().st_size < MOST_BYTES
    library.write_bytes(library.read_bytes()[:-1])
    done = copy.run("-c", "from lltm import cells; cells.prepare(cells.formulas.LSTM)")
    assert done.returncode == 1
    assert f"{library} is damaged" in done.stderr
    assert "reinstall lltm with" in done.stderr


def test_no_thread_that_traces_ends_with_the_interpreter(copy: InstalledCopy) -> None:
    """It would free what torch has left there, sometimes too late, and end the process.

    What is registered with atexit runs after the threads that do not live on have been joined.
    """
    out, _ = called(copy, TRACING)
    assert out == "True"


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    out, err = called(copy, READ_ONLY + CALL)
    assert out == "False False"
    assert "Read-only file system" in err
    assert "name another folder in TORCH_EXTENSIONS_DIR" in err


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/sh\nkill -SEGV $$\n", "c++ printed nothing, and ended with signal 11 (all"),
        ("#!/bin/sh\nexit 3\n", "c++ printed nothing, and ended with exit status 3 (all"),
        ("#!/bin/sh\nexit 0\n", "c++ ended with exit status 0 and made no "),
        ("#!/bin/sh\nprintf 'error: gr\\374n\\n'\nexit 1\n", "compiled: error: gr"),
        ("no program\n", "c++ cannot be started: Exec format error (all"),
        (
            "#!/bin/sh\necho 'ld: No space left on device'\n"
            "echo 'collect2: error: ld returned 1 exit status'\nexit 1\n",
            "compiled: ld: No space left on device (all",
        ),
    ],
    ids=["crash", "silence", "nothing made", "other encoding", "no program", "linker"],
)
def test_it_says_why_the_compiler_failed(
    fresh: InstalledCopy, tmp_path: Path, text: str, reason: str
) -> None:
    compiler = script(tmp_path / "c++", text)
    out, err = called(fresh, CXX=str(compiler))
    assert out == "False False"
    (line,) = [line for line in err.splitlines() if "several times slower" in line]
    assert reason in line


@NO_FOLDER
def test_a_folder_that_no_kernels_can_be_loaded_from_is_named(
    copy: InstalledCopy, program: str, reason: str
) -> None:
    out, err = called(copy, program + CALL)
    assert out == "False False"
    (line,) = [line for line in err.splitlines() if "several times slower" in line]
    assert line.endswith(reason)


@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows limits no file's size")
@pytest.mark.usefixtures("compiler")
def test_a_full_disk_is_named(fresh: InstalledCopy) -> None:
    out, err = called(fresh, NO_ROOM + CALL)
    assert out == "False False"
    (line,) = [line for line in err.splitlines() if "several times slower" in line]
    assert f"than compiled: {fresh.cache}" in line
    assert line.endswith("File too large); name another folder in TORCH_EXTENSIONS_DIR")


HANGING = """
import os, signal, sys, time
os.environ["CXX"] = {compiler!r}
signal.signal(signal.SIGINT, signal.default_int_handler)
compilers = []
def delay_the_second(event, arguments):
    if event == "subprocess.Popen" and "-c" in arguments[1]:
        compilers.append(arguments)
        if len(compilers) == 2:
            time.sleep(1)
sys.addaudithook(delay_the_second)
"""
HANGS = """#!/bin/sh
for word; do test "$previous" = -o && echo half > "$word"; previous=$word; done
case " $* " in *"WHERE"*) : > "${0%c++}begun"; exec sleep 600;; esac
"""


@pytest.fixture
def hanging(
    request: pytest.FixtureRequest, fresh: InstalledCopy, tmp_path: Path
) -> Iterator[subprocess.Popen[str]]:
    """A process whose compiler, which is in tmp_path, hangs with this argument, half done."""
    compiler = script(tmp_path / "c++", HANGS.replace("WHERE", request.param))
    process = fresh.start("-c", HANGING.format(compiler=str(compiler)) + CALL)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
@pytest.mark.parametrize("hanging", [" -c "], indirect=True)
def test_an_interrupt_of_python_alone_ends_a_compiler_that_hangs(
    hanging: subprocess.Popen[str],
) -> None:
    """As a debugger or a notebook sends it; that of a terminal reaches the compiler, too."""
    hanging.send_signal(signal.SIGINT)
    _, err = hanging.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("hanging", [" -shared "], indirect=True)
def test_the_next_build_removes_what_a_killed_one_left(
    hanging: subprocess.Popen[str], fresh: InstalledCopy, tmp_path: Path
) -> None:
    hanging.kill()
    hanging.communicate()
    (build,) = fresh.cache.iterdir()
    assert [path for path in build.iterdir() if path.read_bytes() == b"half\n"]
    compiler = script(tmp_path / "c++", "#!/bin/sh\nexit 1\n")
    called(fresh, CXX=str(compiler))
    assert not [path for path in build.iterdir() if path.read_bytes() == b"half\n"]


FORKING = """
import os, signal, threading, time
from pathlib import Path
from lltm import cells
from lltm.cells import formulas

os.environ["CXX"] = {compiler!r}
threading.Thread(target=cells.prepare, args=[formulas.RNN_TANH]).start()
while not Path({compiler!r}).with_name("begun").exists():
    time.sleep(0.05)
child = os.fork()
if not child:
    signal.alarm(60)
    os.environ["CXX"] = "no-such-compiler"
    os._exit(cells.prepare(formulas.RNN_RELU))
os._exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.skipif(
    torch.cuda.is_available(),
    reason="not run: autograd, which has a thread for each GPU, works in no fork of its process",
)
@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows has no fork")
def test_a_fork_does_not_wait_for_what_its_parent_compiles(
    fresh: InstalledCopy, tmp_path: Path
) -> None:
    """Such as a worker of a DataLoader, started while another thread prepares a cell."""
    compiler = script(tmp_path / "c++", HANGS.replace("WHERE", " -c "))
    called(fresh, FORKING.format(compiler=str(compiler)))
