"""``lltm.jit.load``: built when asked, incrementally, and never hanging on a lock."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from installed_copy import SECONDS, InstalledCopy
from torch.utils import cpp_extension

from lltm import _compile, _jit_cuda, _library, _processor, backends, jit

pytestmark = pytest.mark.subprocess

LOAD = """
import lltm, torch
backend = lltm.jit.load()
shapes = ((3, 4), (15, 9), (15,), (3, 5), (3, 5))
arguments = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]

def results(outputs):
    return [*outputs, *torch.autograd.grad(outputs[0].sum() + outputs[1].square().sum(), arguments)]

expected = results(lltm.reference.cell(*arguments))
for name in ("jit", "aten"):
    for a, e in zip(results(lltm.lltm_cell(*arguments, backend=name)), expected, strict=True):
        torch.testing.assert_close(a, e)
if torch.version.cuda is None:
    assert "jit_cuda" not in lltm._library.namespaces()
    cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    try:
        torch.ops.lltm_jit.cell.default.redispatch(cuda, *arguments)
    except RuntimeError as error:
        assert "lltm_jit::cell: lltm.jit.load() built no CUDA kernels: torch" in str(error), error
    else:
        raise AssertionError("a CUDA tensor was taken")
assert torch.ops.lltm_jit.cpu_capability() == torch.ops.lltm.cpu_capability()
print(backend.name)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> InstalledCopy:
    """Built once, from a path as people have them; the tests of this file go on, in order."""
    copy = InstalledCopy.make(tmp_path_factory.mktemp("jit, my own é"))
    load(copy)
    return copy


def load(copy: InstalledCopy) -> str:
    """What lltm.jit reports; torch logs beside it, such as that there is no CUDA runtime."""
    result = copy.run("-c", LOAD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split()[-1] == "jit"
    lines = result.stderr.splitlines()
    return "\n".join(line for line in lines if line.startswith("lltm.jit:"))


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


def test_a_second_load_waits_for_a_living_build_with_a_message_and_compiles_nothing(
    copy: InstalledCopy,
) -> None:
    before = times(copy)
    assert before
    with FileLock(folder(copy) / "lltm.lock"):
        process = copy.start("-c", LOAD)
        assert process.stderr is not None
        assert "another process is building" in process.stderr.readline()
        assert process.poll() is None
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert out.split()[-1] == "jit"
    assert times(copy) == before


def test_after_a_killed_build_a_change_compiles_only_what_it_touches(copy: InstalledCopy) -> None:
    before = times(copy)
    changed = copy.package / "csrc" / "cpu" / "kernels.cpp"
    changed.write_text(changed.read_text(encoding="utf-8") + "// touched\n", encoding="utf-8")
    process = copy.start("-c", LOAD)
    lock = folder(copy) / "lock"
    while not lock.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)  # far shorter than the compiler takes, which the lock outlives
    process.kill()
    process.communicate()
    assert lock.exists()
    output = load(copy)
    if hasattr(cpp_extension, "FileBaton"):  # a lock that is a mere file; torch 2.15 has none
        assert f"removing {lock}, a stale lock" in output
        assert not lock.exists()
    else:
        assert output == ""
    after = times(copy)
    assert {name for name in after if after[name] != before[name]} == {"kernels.o"}


def test_what_was_damaged_is_built_again(copy: InstalledCopy) -> None:
    """Half a library would end the process with SIGBUS, and half an object every later build."""
    library, kernels = folder(copy) / jit.LIBRARY, folder(copy) / "kernels.o"
    for path in (library, kernels):
        before = path.read_bytes()
        path.write_bytes(before[: len(before) // 2])
        assert f"building {path.name} again: damaged since" in load(copy)
        assert path.stat().st_size == len(before)
    flipped = bytearray(library.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    library.write_bytes(flipped)
    assert f"building {library.name} again" in load(copy)
    assert load(copy) == ""


def test_a_library_that_nobody_finished_is_linked_again(copy: InstalledCopy) -> None:
    """As a build that was killed between the linker and the note leaves it."""
    (note,) = folder(copy).glob("*.json")
    note.write_text("{", encoding="utf-8")
    library = folder(copy) / jit.LIBRARY
    library.write_bytes(library.read_bytes()[:1000])
    before = times(copy)
    assert load(copy) == ""
    assert times(copy) == before


READ_ONLY = """
import errno, filelock, os
def refuse(*args, **kwargs):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
filelock.FileLock.acquire = refuse
"""
"""A read-only file system, as far as lltm.jit meets it: root may write to any folder."""


def contents(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_finished_build_is_used_where_nothing_can_be_written(copy: InstalledCopy) -> None:
    before = contents(folder(copy))
    result = copy.run("-c", READ_ONLY + LOAD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split()[-1] == "jit"
    assert contents(folder(copy)) == before


@pytest.mark.parametrize("what", ["nothing", "damaged", "other sources"])
def test_no_finished_build_and_nothing_can_be_written(
    copy: InstalledCopy, tmp_path: Path, what: str
) -> None:
    other = InstalledCopy(copy.site, tmp_path / "cache")
    other.cache.mkdir()
    source = copy.package / "csrc" / "contract.h"
    before = source.read_text(encoding="utf-8")
    if what != "nothing":
        shutil.copytree(folder(copy), other.cache / folder(copy).name)
    if what == "damaged":
        (folder(other) / jit.LIBRARY).write_bytes(b"")
    if what == "other sources":
        source.write_text(before + "// another one\n", encoding="utf-8")
    result = other.run("-c", READ_ONLY + "import lltm; lltm.jit.load()")
    source.write_text(before, encoding="utf-8")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: lltm.jit.load() cannot write to ")
    assert "Read-only file system" in last
    assert "TORCH_EXTENSIONS_DIR" in last


NO_HOME = """
import os, pwd
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
os.environ.pop("HOME", None)
del os.environ["TORCH_EXTENSIONS_DIR"]
"""
"""A container that runs as a user whom nothing there knows."""
NOEXEC = """
import os, types
os.statvfs = lambda path: types.SimpleNamespace(f_flag=os.ST_NOEXEC)
"""
"""A file system that is mounted so, as far as lltm.jit meets it: root alone may mount one."""
NO_FOLDER = pytest.mark.parametrize(
    ("program", "reason"),
    [
        (NO_HOME, "this user has no home directory; name one in TORCH_EXTENSIONS_DIR"),
        pytest.param(
            NOEXEC,
            "mounted noexec; name another folder in TORCH_EXTENSIONS_DIR",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="not run: only Linux says how it is mounted"
            ),
        ),
    ],
    ids=["no home", "noexec"],
)


@NO_FOLDER
def test_a_folder_that_no_build_can_be_loaded_from_is_an_import_error(
    copy: InstalledCopy, program: str, reason: str
) -> None:
    result = copy.run("-c", program + "import lltm; lltm.jit.load()")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith(reason)


NO_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""
"""A disk that is full: no file may have a byte."""


@pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows limits no file's size")
def test_a_full_disk_is_an_import_error_that_names_it(copy: InstalledCopy, tmp_path: Path) -> None:
    other = InstalledCopy(copy.site, tmp_path)
    result = other.run("-c", NO_ROOM + "import lltm; lltm.jit.load()")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: lltm.jit.load() could not build for torch")
    assert str(tmp_path) in last
    assert "File too large" in last


AGAIN = """
import os, shutil, lltm
path = os.environ["PATH"]
os.mkdir("compiler alone")
compiler = shutil.which(os.environ.get("CXX", "c++"))
os.symlink(compiler, os.path.join("compiler alone", os.path.basename(compiler)))
os.environ["PATH"] = os.path.abspath("compiler alone")
try:
    lltm.jit.load()
except ImportError as error:
    assert "inja" in str(error), error
else:
    raise AssertionError("ninja was found")
os.environ["PATH"] = path
"""


def test_a_process_builds_what_it_has_failed_to_build_before(copy: InstalledCopy) -> None:
    """As in a notebook, once ninja is there, the disk has room, or after Ctrl-C."""
    (folder(copy) / jit.LIBRARY).unlink()
    result = copy.run("-c", AGAIN + LOAD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert load(copy) == ""


def test_a_compiler_that_fails_is_an_import_error(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    for name in (jit.BINDING, *jit.kernel_sources()):
        (copy.package / "csrc" / name).write_text("broken\n", encoding="utf-8")
    result = copy.run("-c", "import lltm; lltm.jit.load()")
    assert result.returncode == 1
    message = result.stderr.strip()
    assert "ImportError: lltm.jit.load() could not build for torch" in message


def test_a_compiler_that_cannot_start_is_an_import_error(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\nkill -SEGV $$\n", encoding="utf-8")
    compiler.chmod(0o755)
    result = copy.run("-c", "import lltm; lltm.jit.load()", CXX=str(compiler))
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: lltm.jit.load() could not build for torch")
    assert str(compiler) in last


@pytest.mark.skipif(sys.platform == "win32", reason="not run: torch finds Windows' compiler itself")
@pytest.mark.parametrize("named", ["no-such-compiler", "no-such-wrapper c++", ""])
def test_a_compiler_that_is_not_there_is_named(
    copy: InstalledCopy, tmp_path: Path, named: str
) -> None:
    other = InstalledCopy(copy.site, tmp_path)
    result = other.run("-c", "import lltm; lltm.jit.load()", CXX=named)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: lltm.jit.load() could not build for torch")
    assert f"there is no C++ compiler {named!r}; install one" in last


# The CUDA half --------------------------------------------------------------------------------


def test_one_string_is_no_flags() -> None:
    """Its letters would be."""
    with pytest.raises(TypeError, match=r"optimise must be a tuple of flags, .*got '-O2'"):
        jit.load(optimise="-O2")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """One with CUDA, a GPU and nvcc, as far as lltm.jit looks."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 1))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    for name in ("bin/nvcc", "lib64/libcudart_static.a"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    return monkeypatch


def test_kernels_for_exactly_the_gpu_of_the_machine(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _jit_cuda.unavailable_reason() is None
    assert _jit_cuda.architecture() == "sm_121"
    flags = _jit_cuda.compiler_flags("sm_121", jit.FLAGS)
    assert [flag for flag in flags if "arch" in flag] == ["-gencode=arch=compute_121,code=sm_121"]
    assert f"-DLLTM_NAMESPACE={jit.NAMESPACE}" in flags
    assert "-Xcompiler=-fvisibility=hidden" in flags
    assert str(tmp_path / "lib64" / "libcudart_static.a") in _jit_cuda.link_flags()
    assert jit.build_directory() != jit.build_directory(gpu="sm_121")


def test_processors_that_are_the_same_to_torch_share_no_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The code is for exactly the one that compiled it, the home directory may be that of many."""
    here = _processor.read()
    known = {jit.build_directory()}
    for other in (replace(here, model=1 + (here.model or 0)), replace(here, instruction_sets=())):
        monkeypatch.setattr(_processor, "read", lambda other=other: other)
        known.add(jit.build_directory())
    assert len(known) == 3


def test_every_cuda_source_is_compiled() -> None:
    directory = jit.source_directory()
    known = {f"cuda/{path.name}" for path in (directory / "cuda").glob("*.cu")}
    assert {*known, "native/cuda_binding.cpp"} == set(_jit_cuda.SOURCES)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("torch", "is a build without CUDA"),
        ("gpu", "torch sees no GPU to build for"),
        ("nvcc", "there is no nvcc; put it on PATH, or name the toolkit in CUDA_HOME"),
    ],
)
def test_what_keeps_the_cuda_kernels_from_being_built_is_told(
    machine: pytest.MonkeyPatch, what: str, reason: str
) -> None:
    if what == "torch":
        machine.setattr(torch.version, "cuda", None)
    if what == "gpu":
        machine.setattr(torch.cuda, "is_available", lambda: False)
    if what == "nvcc":
        machine.setattr(cpp_extension, "CUDA_HOME", None)
        machine.delenv("CUDA_HOME", raising=False)
        machine.setenv("PATH", "")
    assert reason in str(_jit_cuda.unavailable_reason())


def test_tensors_on_the_gpu_go_to_the_kernels_built_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = {"stable": "lltm", "cuda": "lltm", "jit": jit.NAMESPACE, "jit_cuda": jit.NAMESPACE}
    monkeypatch.setattr(_library, "namespaces", lambda: both)
    assert backends.fastest("cuda").name == "jit_cuda"
    del both["jit"], both["jit_cuda"]
    assert backends.fastest("cuda").name == "cuda"


BUILDING = """
import subprocess, time
from lltm import _compile
with _compile.watched() as environment:
    compiler = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    print(compiler.pid, flush=True)
    while True:  # CPython 3.12 on can begin a sleep with a signal that has just arrived unhandled
        time.sleep(0.1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_no_compiler_outlives_a_build_that_is_ended(name: str, tmp_path: Path) -> None:
    build = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", BUILDING],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert build.stdout is not None
    compiler = int(build.stdout.readline())
    build.send_signal(signal.Signals[name])
    build.wait(timeout=60)
    assert ends(compiler)
    build.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
def test_a_compiler_that_has_just_been_started_does_not_outlive_its_build() -> None:
    """posix_spawn, ninja's way, returns while exec lays out the environment: ms for a long one."""
    long = {f"long_{number}": "" for number in range(50_000)}
    for _ in range(5):
        with _compile.watched() as environment:
            time.sleep(0.2)  # until the one that ends it is up
            command = ["sleep", "600"]
            compiler = os.posix_spawnp("sleep", command, {**environment, **long})
        ended = ends(compiler)
        os.kill(compiler, signal.SIGKILL)
        os.waitpid(compiler, 0)
        assert ended


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
def test_a_compiler_that_is_about_to_exec_does_not_outlive_its_build() -> None:
    """It has its parent's environment until then; here a shell's, which execs 20 ms later."""
    with _compile.watched() as environment:
        (mark,) = environment.items() - os.environ.items()
        shell = subprocess.Popen(
            ["sh", "-c", "read told; export $0; exec sleep 600", "=".join(mark)],
            stdin=subprocess.PIPE,
        )
        time.sleep(0.2)  # until it waits
        teller = threading.Timer(0.02, shell.communicate, (b"\n",))
        teller.start()
    ended = ends(shell.pid)
    shell.kill()
    teller.join()
    assert ended


@pytest.mark.skipif(sys.platform != "linux", reason="not run: processes are found in /proc")
def test_a_process_that_ninja_starts_does_not_outlive_its_build(tmp_path: Path) -> None:
    with _compile.watched_in(tmp_path):
        compiler = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    ended = ends(compiler.pid)
    compiler.kill()
    compiler.wait()
    assert ended


@pytest.mark.parametrize("kind", ["cell", "native binding"])
def test_what_another_thread_starts_outlives_a_build(kind: str, tmp_path: Path) -> None:
    """Such as a worker of a DataLoader, or git: it has nothing to do with the build."""
    build = _compile.watched() if kind == "cell" else _compile.watched_in(tmp_path)
    with build:
        started = subprocess.Popen(["sleep", "600"])
    outlives = started.poll() is None
    started.kill()
    started.wait()
    assert outlives


FORKING = """
import os, time
from lltm import _compile
with _compile.watched():
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
assert os.waitpid(child, os.WNOHANG) == (0, 0)
os.kill(child, 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="not run: nothing is watched elsewhere")
def test_a_build_does_not_wait_for_what_another_thread_forks(tmp_path: Path) -> None:
    """Such as a worker of a DataLoader, which holds open what this process has opened."""
    subprocess.run([sys.executable, "-c", FORKING], cwd=tmp_path, check=True)


def test_two_threads_may_build() -> None:
    """A kernel of a cell and the native binding: neither ends what the other has started."""

    def build(_: int) -> int:
        with _compile.watched() as environment:
            return subprocess.run(["sleep", "0.3"], env=environment, check=False).returncode

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(build, range(2))) == [0, 0]


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    """Whether a process ends by itself, within 5 s."""
    end = time.monotonic() + 5
    while runs(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
