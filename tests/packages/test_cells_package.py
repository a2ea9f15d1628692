"""``python -m lltm.cells build``: a cell as a wheel that runs where there is no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lltm import _compile
from lltm.cells.__main__ import main

STEP = """
import torch
from lltm import cells

def decaying(z, state, *, rate=0.5):
    return rate * state[0] + torch.tanh(z[0])

DECAYING = cells.define(decaying, gates=1, states=1)
NUMBER = 3
"""
OF_A_DATACLASS = """
from __future__ import annotations
import dataclasses
import torch
from lltm import cells

@dataclasses.dataclass(frozen=True)
class Decaying:
    rate: float = 0.5

    def __call__(self, z, state):
        return self.rate * state[0] + torch.tanh(z[0])

DECAYING = cells.define(Decaying(), gates=1, states=1)
"""
USE = """
import torch
from decaying import DECAYING
from lltm import cells
assert cells.prepare(DECAYING)
torch.manual_seed(0)
rnn = cells.Sequence(DECAYING, 3, 4, rate=0.25)
x, h = torch.randn(5, 2, 3), torch.zeros(2, 4)
output, _ = rnn(x)
for t in range(5):
    z = torch.cat([h, x[t]], 1) @ rnn.weight_l0.T + rnn.bias_l0
    h = DECAYING.step((z,), (h,), rate=0.25)
    torch.testing.assert_close(output[t], h)
try:
    cells.attach(cells.formulas.GRU, __import__("decaying").__path__[0] + "/libdecaying.so")
except ImportError as error:
    print(error)
"""

COMPILER = """
import os, resource, sys
from pathlib import Path

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes(os.urandom(2_000_000))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(STEP, encoding="utf-8")
    return path


def test_a_wheel_passes_the_audit_and_runs_without_a_compiler(source: Path) -> None:
    folder = source.parent
    assert main(["build", f"{source}:DECAYING", "--out", str(folder), "--version", "1.2"]) == 0
    (wheel,) = folder.glob("decaying-1.2-py3-none-*.whl")
    declared = ("--binding", "stable", "--target", "2.10", "--python", "none", "--json")
    audit = [sys.executable, "-m", "torchproof.audit", str(wheel), *declared]
    audited = subprocess.run(audit, capture_output=True, text=True, check=False)
    assert audited.returncode == 0, audited.stdout
    assert json.loads(audited.stdout)
    pip = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", *pip, str(wheel)], check=True)
    paths = (str(folder / "site"), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CXX": "no-such-compiler"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USE],
        cwd=folder,  # not the source tree, whose lltm has no library
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "libdecaying.so was not built from this step of gru by lltm" in done.stdout
    with zipfile.ZipFile(wheel) as files:
        library = files.read("decaying/libdecaying.so")
    assert str(folder).encode() not in library


@pytest.fixture
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of the compiler, one that writes two megabytes of anything."""
    made = tmp_path / "compiler"
    made.write_text(f"#!{sys.executable}\n{COMPILER}", encoding="utf-8")
    made.chmod(0o755)
    monkeypatch.setenv("CXX", str(made))
    return made


@pytest.mark.parametrize("name", ["Path", "attach", "Definition"])
def test_a_cell_may_be_named_as_what_its_package_uses(
    source: Path, quick_compiler: Path, name: str
) -> None:
    """Its library is no library here, and that is what the package has to come to."""
    source.write_text(f"{STEP}\n{name} = DECAYING\n", encoding="utf-8")
    assert main(["build", f"{source}:{name}", "--out", str(source.parent)]) == 0
    (wheel,) = source.parent.glob("*.whl")
    site = source.parent / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    paths = (str(site), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", f"import {name.lower()}"],
        cwd=source.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"lib{name.lower()}." in done.stderr.splitlines()[-1]


def test_a_wheel_that_cannot_be_written_leaves_the_earlier_one(
    source: Path, quick_compiler: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource", reason="not run: the system limits no file's size")
    build = ["build", f"{source}:DECAYING", "--out", str(source.parent / "out")]
    assert main(build) == 0
    (wheel,) = (source.parent / "out").iterdir()
    before = wheel.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        assert main(build) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"{wheel} cannot be written: File too large" in capsys.readouterr().err
    assert list((source.parent / "out").iterdir()) == [wheel]
    assert wheel.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mine.py", "expected FILE.py:NAME, got 'mine.py'"),
        ("none.py:DECAYING", "there is no file none.py"),
        ("mine.txt:DECAYING", "mine.txt must be a Python file, with the suffix .py"),
        ("mine.py:NUMBER", "must be what lltm.cells.define() returns, got int; cells there: DEC"),
        ("mine.py:OTHER", "must be what lltm.cells.define() returns, got NoneType"),
        ("broken.py:DECAYING", "broken.py fails: SyntaxError: '(' was never closed (broken.py"),
        ("exits.py:DECAYING", "exits.py fails: SystemExit: 0"),
        ("needs.py:DECAYING", "needs.py fails: ModuleNotFoundError: No module named 'nothing'"),
    ],
)
def test_what_is_no_cell_is_named(
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    message: str,
) -> None:
    monkeypatch.chdir(source.parent)
    for name, text in {
        "mine.txt": STEP,
        "broken.py": "x = (",
        "needs.py": "import nothing",
        "exits.py": "raise SystemExit(0)",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    assert main(["build", target, "--out", "out"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_what_takes_a_minute_is_said_first(
    source: Path, quick_compiler: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", f"{source}:DECAYING", "--out", str(source.parent)]) == 0
    printed = capsys.readouterr()
    assert "compiling DECAYING for baseline" in printed.err
    (wheel,) = source.parent.glob("*.whl")
    assert printed.out == f"{wheel}\n"


def test_nvcc_gets_the_compiler_behind_a_launcher(source: Path, quick_compiler: Path) -> None:
    """A launcher, such as ccache, is no compiler by itself."""
    folder = source.parent
    calls, nvcc, launcher = folder / "calls", folder / "cuda/bin/nvcc", folder / "ccache"
    nvcc.parent.mkdir(parents=True)
    for program, text in (
        (nvcc, f'echo "$@" >> {calls}; exec {quick_compiler} "$@"'),
        (launcher, 'exec "$@"'),
    ):
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)
    # A process of its own: a torch with CUDA looks for the toolkit when it is imported.
    environment = {"CUDA_HOME": str(folder / "cuda"), "CXX": f"{launcher} {quick_compiler}"}
    build = ("build", f"{source}:DECAYING", "--out", str(folder), "--cuda", "9.0")
    done = subprocess.run(
        [sys.executable, "-m", "lltm.cells", *build],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"-ccbin {quick_compiler} " in calls.read_text(encoding="utf-8")


def test_a_file_for_a_folder_is_named(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", f"{source}:DECAYING", "--out", str(source)]) == 1
    assert f"--out must be a folder, {source} is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "version", ["one", "1.0/../x", "1.0 ", "v1.0", "1.0-1", "01.0", "\u0663.\u0661", ""]
)
def test_what_is_no_version_is_named(
    source: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    """pip would refuse the wheel's name, or the wheel be written elsewhere."""
    out = source.parent / "out"
    target = f"{source}:DECAYING"
    assert main(["build", target, "--out", str(out), f"--version={version}"]) == 1
    message = f"such as 1.2.0 or 1.2.0rc1, got {version!r}"
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_file_may_hold_a_dataclass(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text(OF_A_DATACLASS, encoding="utf-8")
    assert main(["functor", f"{source}:DECAYING"]) == 0
    assert "Math::tanh" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Ünï", "_", "_decaying", "DECAYING_"])
def test_a_name_that_pip_refuses_is_refused_first(
    source: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source.write_text(f"{STEP}\n{name} = DECAYING\n", encoding="utf-8")
    assert main(["build", f"{source}:{name}", "--out", str(source.parent)]) == 1
    message = f"no package can be named after {name} in {source}: expected letters of a to z"
    assert message in capsys.readouterr().err
    assert not list(source.parent.glob("*.whl"))


@pytest.mark.parametrize("name", ["LLTM", "TORCH", "RANDOM", "LAMBDA", "NUMPY"])
def test_a_cell_named_as_another_package_is_refused(
    source: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Its wheel would overwrite that package, or never be imported."""
    source.write_text(f"{STEP}\n{name} = DECAYING\n", encoding="utf-8")
    assert main(["build", f"{source}:{name}", "--out", str(source.parent)]) == 1
    message = f"a package named {name.lower()} cannot be made of {name} in {source}"
    assert message in capsys.readouterr().err
    assert not list(source.parent.glob("*.whl"))


def test_a_gpu_that_is_misspelt_is_named(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, out = f"{source}:DECAYING", source.parent / "out"
    assert main(["build", target, "--out", str(out), "--cuda", "9.0;hopper"]) == 1
    assert "--cuda: 'hopper' is no GPU architecture; write 9.0 or" in capsys.readouterr().err
    assert not out.exists()


def test_without_a_compiler_it_says_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["build", f"{source}:DECAYING", "--out", str(source.parent)]) == 1
    assert _compile.unavailable_reason() in capsys.readouterr().err
    assert not list(source.parent.glob("*.whl"))


def test_a_compiler_that_is_misspelt_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", 'g++ "')
    assert main(["build", f"{source}:DECAYING", "--out", str(source.parent)]) == 1
    message = "CXX must name a C++ compiler, such as g++, got 'g++ \"': No closing quotation"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("named", ["", " "])
def test_an_empty_name_of_a_compiler_is_none(
    source: Path, quick_compiler: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """As make and setuptools have it."""
    quick_compiler.rename(quick_compiler.with_name("c++"))
    paths = (str(quick_compiler.parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    monkeypatch.setenv("CXX", named)
    assert main(["build", f"{source}:DECAYING", "--out", str(source.parent)]) == 0
    assert list(source.parent.glob("*.whl"))


def test_a_module_beside_the_file_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `python -m lltm.cells` in that folder finds it, and the wheel's user would not."""
    (source.parent / "beside_it.py").write_text("VALUE = 1\n", encoding="utf-8")
    source.write_text(f"from beside_it import VALUE\n{STEP}", encoding="utf-8")
    monkeypatch.syspath_prepend(source.parent)
    out = source.parent / "out"
    assert main(["build", f"{source}:DECAYING", "--out", str(out)]) == 1
    message = f"{source} imports beside_it from its own folder, and the wheel holds {source} alone"
    assert message in capsys.readouterr().err
    assert not out.exists()
