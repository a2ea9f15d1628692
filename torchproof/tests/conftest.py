"""What the tests of the audit share: a compiler for small libraries, and a torch made of stubs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

PROJECT = tempfile.TemporaryDirectory(prefix="torchproof-decay-")


def pytest_configure(config: pytest.Config) -> None:
    """Work on a made-up project, with the files that are made of its matrix.toml.

    torchproof looks for its project in the working directory when it is imported. The process that
    only starts xdist's workers stays where it is: they begin in its directory.
    """
    if config.getoption("numprocesses", None):
        return
    shutil.copytree(Path(__file__).parent / "decay", PROJECT.name, dirs_exist_ok=True)
    os.chdir(PROJECT.name)
    subprocess.run([sys.executable, "-m", "torchproof", "--write"], check=True)


@dataclass(frozen=True)
class Toolchain:
    """The machine's C++ compiler, writing into one folder."""

    compiler: str
    folder: Path

    def library(self, name: str, source: str, *flags: str) -> Path:
        """Compile a source text into a shared library."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        code = path.parent / f"{path.name}.cpp"
        code.write_text(source, encoding="utf-8")
        self.run(self.compiler, "-shared", "-fPIC", "-O0", str(code), "-o", str(path), *flags)
        return path

    def stub(self, soname: str, functions: Iterable[str], version: str | None = None) -> Path:
        """A library that defines some functions, under a symbol version when one is named."""
        source = "".join(f'extern "C" int {name}() {{ return 0; }}\n' for name in functions)
        flags = [f"-Wl,-soname,{Path(soname).name}", "-nostdlib"]
        if version:
            script = self.folder / f"{Path(soname).name}.version"
            script.write_text(f"{version} {{ global: *; }};\n", encoding="utf-8")
            flags.append(f"-Wl,--version-script={script}")
        return self.library(soname, source, *flags)

    def rewrite_comment(self, library: Path, comment: str) -> None:
        """Let a library say that another compiler made it."""
        text = self.folder / f"{library.name}.comment"
        text.write_bytes(comment.encode() + b"\0")
        self.run("objcopy", "--remove-section=.comment", str(library))
        self.run("objcopy", f"--add-section=.comment={text}", str(library))

    def run(self, *command: str) -> None:
        """Run a tool; its own words are the failure."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """The C++ compiler of this machine."""
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "the audit's fixtures are compiled: install g++"
    return Toolchain(compiler, tmp_path)
