"""The same sources are the same wheel, wherever and whenever it is built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest

import lltm
from lltm import _library
from torchproof import config

ROOT = Path(__file__).parents[2]
BUILT = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "build_support", "csrc", "lltm")

OF_DATES = "SOURCE_DATE_EPOCH must be seconds since 1970, at most 4294967295"


# setup.py, with the installed library in the place of what would be compiled.
SETUP = """
import pathlib, runpy, shutil, sys
sys.path.insert(0, "")
from build_support import library

installed = pathlib.Path(sys.argv.pop(1))

def build_extension(self, ext):
    made = pathlib.Path(self.get_ext_fullpath(ext.name))
    made.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(installed / made.name, made)

library.Build.build_extension = build_extension
runpy.run_path("setup.py", run_name="__main__")
"""


def clone(folder: Path) -> None:
    for name in FILES:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)


def run_setup(folder: Path, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-c", SETUP, str(_library.DIRECTORY), "-q", *arguments]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LLTM_")}
    subprocess.run(command, cwd=folder, env={**inherited, **environment}, check=True)


def refusal(folder: Path, *command: str, **environment: str) -> str:
    """What Python prints as it ends in a failure."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.strip()


def wheel(folder: Path, time: int, umask: int) -> Path:
    """Pack the installed library, of a clone made at that time by a user with that umask."""
    clone(folder)
    built = folder / "build" / BUILT / "lltm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(lltm.__file__).parent, built, ignore=ignored)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (time, time))
    environment = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "--skip-build", "--dist-dir", "dist"],
        cwd=folder,
        env=environment,
        umask=umask,
        check=True,
    )
    (made,) = (folder / "dist").glob("*.whl")
    return made


def test_the_library_is_small() -> None:
    """What it may take is 1 MiB; that of the cells has a limit of its own."""
    library = _library.DIRECTORY / _library.NAMES[sys.platform]
    assert library.stat().st_size < 1 << 20


def test_two_clones_give_the_same_bytes(tmp_path: Path) -> None:
    first = wheel(tmp_path / "one", 1_600_000_000, umask=0o022)
    second = wheel(tmp_path / "other", 1_700_000_000, umask=0o002)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def source_distribution(folder: Path, time: int, mode: int, **variant: str) -> Path:
    """Pack a clone whose files have that time and mode."""
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for tracked in git.stdout.decode().split("\0")[:-1]:
        target = folder / tracked
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / tracked, target)
        target.chmod(mode)
        os.utime(target, (time, time))
    command = [sys.executable, "setup.py", "-q", "sdist", "--formats=gztar"]
    environment = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, cwd=folder, env={**environment, **variant}, check=True)
    (made,) = (folder / "dist").glob("*.tar.gz")
    return made


@pytest.mark.parametrize("variant", [{}, {"LLTM_BINDING": "native"}, {"LLTM_DEBUG": "1"}])
def test_two_clones_give_the_same_source_distribution(
    tmp_path: Path, variant: dict[str, str]
) -> None:
    first = source_distribution(tmp_path / "one", 1_600_000_000, 0o664)
    second = source_distribution(tmp_path / "other", 1_700_000_000, 0o644, **variant)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_tests_of_a_source_distribution_can_be_collected(tmp_path: Path) -> None:
    """With what a packager has who tests the package: the wheel, and no checkout."""
    packed = source_distribution(tmp_path / "clone", 1_600_000_000, 0o644)
    shutil.unpack_archive(packed, tmp_path, filter="data")
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest"),
            *("-q", "--collect-only", "-p", "no:cacheprovider"),
        ],
        cwd=tmp_path / packed.name.removesuffix(".tar.gz"),
        env={**os.environ, "PYTHONPATH": str(Path(lltm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "tests/op/test_equivalence.py" in done.stdout


@pytest.mark.parametrize("commands", [[], ["build"]], ids=["alone", "after a build"])
def test_a_wheel_has_nothing_of_an_earlier_build(commands: list[str], tmp_path: Path) -> None:
    clone(tmp_path)
    of_cuda = tmp_path / "build" / BUILT / "lltm" / "lib" / "liblltm_cuda.so"
    removed = of_cuda.parents[1] / "removed.py"
    interrupted = tmp_path / "build" / f"bdist.{sysconfig.get_platform()}" / "wheel" / "lltm"
    for path in (of_cuda, removed, interrupted / "removed.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    run_setup(tmp_path, *commands, "bdist_wheel", "--dist-dir", "dist", SOURCE_DATE_EPOCH="")
    (made,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(made) as packed:
        names = packed.namelist()
    assert {name for name in names if "/lib/" in name} == {
        "lltm/lib/build.json",
        f"lltm/lib/{_library.NAMES[sys.platform]}",
    }
    assert "lltm/__init__.py" in names
    assert "lltm/removed.py" not in names


def test_a_build_into_a_named_folder_leaves_what_is_there(tmp_path: Path) -> None:
    clone(tmp_path)
    named = tmp_path / "named"
    named.mkdir()
    (named / "kept.txt").write_text("kept")
    run_setup(tmp_path, "build", "--build-lib", "named")
    assert (named / "kept.txt").read_text() == "kept"
    assert (named / "lltm" / "lib" / _library.NAMES[sys.platform]).is_file()


@pytest.mark.parametrize("before", ["sdist", "egg_info"])
def test_a_wheel_beside_what_needs_no_library_has_one(before: str, tmp_path: Path) -> None:
    clone(tmp_path)
    run_setup(tmp_path, before, "bdist_wheel", "--dist-dir", "dist")
    (made,) = (tmp_path / "dist").glob("*.whl")
    assert not made.stem.endswith("-any")
    with zipfile.ZipFile(made) as packed:
        assert f"lltm/lib/{_library.NAMES[sys.platform]}" in packed.namelist()


def test_a_clone_is_built_in_place(tmp_path: Path) -> None:
    """As `pip install --editable` does; the tree has no folder for the library."""
    clone(tmp_path)
    run_setup(tmp_path, "build_ext", "--inplace")
    assert {path.name for path in (tmp_path / "lltm" / "lib").iterdir()} == {
        "build.json",
        _library.NAMES[sys.platform],
    }


# A compiler that notes its arguments and compiles nothing; it has a real one's name and version.
COMPILER = """#!/bin/sh
case "$1" in
    --version | -dump*) exec c++ "$@" ;;
esac
echo "$*" >>"$0.log"
while [ "$1" != -o ]; do shift; done
: >"$2"
"""
OTHER_TORCH = """
import importlib.metadata, torch as installed
version = importlib.metadata.version
importlib.metadata.version = lambda name: torch if name == "torch" else version(name)
installed.__version__ = torch
"""
RUN = "import runpy; runpy.run_path('setup.py', run_name='__main__')"
of_a_shell = pytest.mark.skipif(
    sys.platform == "win32", reason="not run: the compiler here is a shell script"
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH, with that compiler."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "g++").write_text(COMPILER)
    (folder / "g++").chmod(0o755)
    return folder


def commands_of_a_build(tree: Path, tools: Path, torch: str = "", **environment: str) -> list[str]:
    """What a build in place runs of the compiler, with a torch that says that version."""
    log = tools / "g++.log"
    log.write_text("")
    code = f"torch = {torch!r}\n{OTHER_TORCH if torch else ''}{RUN}"
    named = {
        "CXX": str(tools / "g++"),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(
        [sys.executable, "-c", code, "-q", "build_ext", "--inplace"],
        cwd=tree,
        env={**os.environ, **named, **environment},
        check=True,
    )
    return log.read_text().splitlines()


def hide_ninja(tools: Path) -> None:
    (tools / "ninja").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ninja").chmod(0o755)


@of_a_shell
def test_without_ninja_another_variant_is_built_again(tmp_path: Path, tools: Path) -> None:
    """Of what setuptools compares with the library, no file has changed."""
    hide_ninja(tools)
    clone(tmp_path / "tree")
    for binding in ("stable", "native"):
        commands = commands_of_a_build(tmp_path / "tree", tools, LLTM_BINDING=binding)
        assert any(f"{binding}/binding.o" in command for command in commands)


@of_a_shell
def test_on_another_torch_all_is_compiled_again(tmp_path: Path, tools: Path) -> None:
    """Its headers may be in the same place, and older: uv and conda keep their files' dates."""
    clone(tmp_path / "tree")
    first = commands_of_a_build(tmp_path / "tree", tools)
    assert len(commands_of_a_build(tmp_path / "tree", tools)) < len(first)
    assert len(commands_of_a_build(tmp_path / "tree", tools, torch="2.99.0")) == len(first)


@of_a_shell
def test_a_compiler_of_two_words_is_described_as_it_compiles(tmp_path: Path, tools: Path) -> None:
    """As `ccache g++`, which torch takes until 2.12; the ninja of a later one would not."""
    hide_ninja(tools)
    clone(tmp_path / "tree")
    named = f"env {tools / 'g++'}"
    assert commands_of_a_build(tmp_path / "tree", tools, torch="2.12.1", CXX=named)
    built = json.loads((tmp_path / "tree" / "lltm" / "lib" / "build.json").read_text())
    assert built["compiler"].startswith(("g++ ", "clang++ "))


# What it makes says how it was made; a release is linked once there is a file beside the compiler.
RECORDING_COMPILER = """#!/bin/sh
case "$1" in
    --version | -dump*) exec c++ "$@" ;;
esac
command="$*"
objects=
for word; do
    case "$word" in *.o) objects="$objects $word" ;; esac
done
case "$command" in
    *-Wl,--strip-all* | *-Wl,-x*)
        touch "$0.linking"
        while [ ! -e "$0.go" ]; do sleep 0.1; done
        ;;
esac
while [ "$1" != -o ]; do shift; done
case "$command" in
    *-shared* | *-bundle*) cat $objects >"$2" ;;
    *) echo "$command" >"$2" ;;
esac
"""


def start_build(tree: Path, debug: int, compiler: Path) -> subprocess.Popen[str]:
    """Make a wheel of the release or with debug information."""
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", f"dist-{debug}"]
    named = {"LLTM_DEBUG": str(debug), "CXX": str(compiler)}
    environment = {**os.environ, **named}
    return subprocess.Popen(
        command, cwd=tree, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    )


@of_a_shell
def test_two_builds_of_a_tree_do_not_mix(tmp_path: Path, tools: Path) -> None:
    """Or a release would have parts without optimization."""
    (tools / "g++").write_text(RECORDING_COMPILER)
    tree = tmp_path / "tree"
    clone(tree)
    release = start_build(tree, 0, tools / "g++")
    assert release.stderr is not None
    while not (tools / "g++.linking").exists():
        assert release.poll() is None
        time.sleep(0.1)
    debug = start_build(tree, 1, tools / "g++")
    assert debug.stderr is not None
    while line := debug.stderr.readline():  # until it ends, where it does not wait
        if line.startswith("another process builds in "):
            break
    (tools / "g++.go").touch()
    for build in (release, debug):
        _, errors = build.communicate()
        assert build.returncode == 0, errors
    for count, flag in enumerate(("-O2 -g0", "-O0 -g")):
        (made,) = tree.glob(f"dist-{count}/*.whl")
        with zipfile.ZipFile(made) as packed:
            library = packed.read(f"lltm/lib/{_library.NAMES[sys.platform]}").decode()
        assert library
        assert all(f" {flag} " in command for command in library.splitlines())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LLTM_CUDA", "true", "LLTM_CUDA must be 1 or 0, got 'true'"),
        ("LLTM_CELLS", "yes", "LLTM_CELLS must be 1 or 0, got 'yes'"),
        ("LLTM_DEBUG", "2", "LLTM_DEBUG must be 1 or 0, got '2'"),
        ("LLTM_BINDING", "Stable", "LLTM_BINDING must be stable or native, got 'Stable'"),
        ("SOURCE_DATE_EPOCH", "now", f"{OF_DATES}, got 'now'"),
        ("SOURCE_DATE_EPOCH", "1700000000000", f"{OF_DATES}, got '1700000000000'"),
        ("SOURCE_DATE_EPOCH", "4294967296", f"{OF_DATES}, got '4294967296'"),
    ],
)
def test_what_the_environment_asks_for_is_checked_first(
    name: str, value: str, message: str
) -> None:
    assert refusal(ROOT, "setup.py", "--version", **{name: value}) == message


@of_a_shell
@pytest.mark.parametrize(
    ("mode", "reason"), [(0o755, "run module load cuda first"), (0o644, "Permission denied")]
)
def test_an_nvcc_that_does_not_run_is_named(mode: int, reason: str, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho run module load cuda first >&2\nexit 1\n")
    nvcc.chmod(mode)
    named = {"LLTM_CUDA": "1", "CUDA_HOME": str(tmp_path)}
    refused = refusal(ROOT, "setup.py", "--version", **named)
    assert refused.startswith(f"LLTM_CUDA=1 needs nvcc, and {nvcc} --version fails ({reason}); ")
    assert "leave LLTM_CUDA out" in refused


def version(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from build_support.variant import *; print(package_version())"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_debug_build_does_not_pass_for_a_release() -> None:
    """Ten times as slow, it would be one wherever the variable is still set."""
    assert version(LLTM_DEBUG="1") == f"{lltm.__version__}+debug"


def test_a_packager_gets_the_version_without_marks() -> None:
    """conda compares it with the package's."""
    assert version(LLTM_BINDING="native").startswith(f"{lltm.__version__}+torch")
    for marked in ({"LLTM_BINDING": "native"}, {"LLTM_CUDA": "1"}, {"LLTM_DEBUG": "1"}):
        assert version(**marked, LLTM_PACKAGER="conda") == lltm.__version__
    assert version(LLTM_BINDING="", LLTM_PACKAGER="") == lltm.__version__


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CXX", "no-such-compiler", "there is no C++ compiler 'no-such-compiler' that runs"),
        ("CXX", "ccache g++", "or name one in CXX: one program, without arguments"),
        ("CXX", 'g++ "', "there is no C++ compiler 'g++ \"' that runs"),
        ("CXX", "false", "there is no C++ compiler 'false' that runs (Command"),
        ("MAX_JOBS", "many", "MAX_JOBS must be how many compilers run at a time, 1 or more, got"),
        ("MAX_JOBS", "0", "1 or more, got '0'"),
    ],
)
def test_what_a_build_needs_is_checked_before_it(
    tmp_path: Path, name: str, value: str, message: str
) -> None:
    clone(tmp_path)
    refused = refusal(tmp_path, "setup.py", "-q", "build_ext", **{name: value})
    assert message in refused
    assert "Traceback" not in refused


def test_a_torch_before_the_stable_abi_is_named(tmp_path: Path) -> None:
    """With --no-build-isolation pip compiles before it installs what the wheel requires."""
    clone(tmp_path)
    code = f"torch = '2.9.1'\n{OTHER_TORCH}{RUN}"
    refused = refusal(tmp_path, "-c", code, "-q", "build_ext", LLTM_BINDING="stable", CXX="false")
    assert refused.startswith("lltm's stable library is built on torch 2.10 or newer, and ")
    assert f"{sys.executable} has 2.9.1; run `pip install 'torch>=2.10'` there first" in refused
    assert "LLTM_BINDING=native" in refused


@of_a_shell
def test_a_compiler_in_a_path_with_a_space_is_refused_first(tmp_path: Path, tools: Path) -> None:
    """Torch takes the path whole and compiles; setuptools splits it, and could not link."""
    clone(tmp_path / "tree")
    spaced = tools.rename(tmp_path / "my tools") / "g++"
    refused = refusal(tmp_path / "tree", "setup.py", "-q", "build_ext", CXX=str(spaced))
    assert refused.startswith(f"there is no C++ compiler '{spaced}' that runs")
    assert "its path without spaces" in refused
    assert not (spaced.parent / "g++.log").exists()


@pytest.mark.parametrize("name", ["CXX", "MAX_JOBS"])
def test_what_is_empty_is_not_named(tmp_path: Path, name: str) -> None:
    clone(tmp_path)
    run_setup(tmp_path, "build_ext", "--inplace", **{name: ""})


@pytest.mark.parametrize("binding", ["stable", "native"])
def test_without_torch_a_build_says_to_install_it(tmp_path: Path, binding: str) -> None:
    """The standard library and setuptools are there, and nothing else."""
    clone(tmp_path)
    hidden = "sys.path = [path for path in sys.path if not path.endswith('-packages')]"
    run = "runpy.run_path('setup.py', run_name='__main__')"
    code = f"import runpy, setuptools, sys; {hidden}; {run}"
    said = refusal(tmp_path, "-c", code, "bdist_wheel", LLTM_BINDING=binding, PYTHONPATH="")
    assert said.startswith("No module named 'torch': lltm is compiled against it")


def test_a_torch_that_does_not_load_is_named(tmp_path: Path) -> None:
    """As where TMPDIR is mounted noexec: pip makes its isolated environment there."""
    clone(tmp_path / "tree")
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    library = package / "libtorch.so"
    library.write_text("no library")
    (package / "__init__.py").write_text(f"import ctypes; ctypes.CDLL({str(library)!r})")
    named = {"PYTHONPATH": str(package.parent)}
    refused = refusal(tmp_path / "tree", "setup.py", "-q", "bdist_wheel", **named)
    assert refused.startswith(f"torch cannot be loaded by {sys.executable}: {library}: ")
    assert "name another folder in TMPDIR" in refused
    assert "Traceback" not in refused


@pytest.mark.parametrize("old", ["65.5.0", "76.1.0"])
def test_an_old_setuptools_is_named(old: str, tmp_path: Path) -> None:
    """A venv of CPython 3.11 has 65.5: it knows no bdist_wheel. 76.1 reads no SPDX licence."""
    clone(tmp_path)
    run = "runpy.run_path('setup.py', run_name='__main__')"
    code = f"import runpy, setuptools, sys; setuptools.__version__ = '{old}'; {run}"
    (needed,) = (
        requirement
        for requirement in config.read_toml(ROOT / "pyproject.toml")["build-system"]["requires"]
        if requirement.startswith("setuptools")
    )
    said = refusal(tmp_path, "-c", code, "egg_info")
    assert f"and {sys.executable} has {old}; run `pip install '{needed}'` there first" in said
    assert "Traceback" not in said
