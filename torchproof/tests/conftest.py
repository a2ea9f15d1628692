"""What tests share: a compiler for small libraries, and the damage that a kept file may take."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


def damages(path: Path, count: int) -> Iterator[bytes]:
    """Damage a JSON file in many ways: bits, bytes that are cut, text that is not UTF-8, types."""
    whole = path.read_bytes()
    dice = random.Random(1)
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: _with(whole, at := dice.randrange(len(whole)), bytes([whole[at] ^ 1 << at % 8])),
        lambda: _with(whole, dice.randrange(len(whole)), b"", dice.randrange(1, 9)),
        lambda: whole[: dice.randrange(len(whole))],
        lambda: _with(whole, dice.randrange(len(whole)), b"\xff"),
        lambda: _of_another_type(whole, dice),
        lambda: dice.choice((b"", b"null", b"[]", b"{}", b'"text"', b"7", b"[" * 100_000)),
    )
    for number in range(count):
        changed = changes[number % len(changes)]()
        path.write_bytes(changed)
        yield changed
    path.write_bytes(whole)


def _with(whole: bytes, at: int, new: bytes, length: int = 1) -> bytes:
    return whole[:at] + new + whole[at + length :]


def _of_another_type(whole: bytes, dice: random.Random) -> bytes:
    """The same JSON with one value, on any level, of another type."""
    document = json.loads(whole)
    inner = document
    while True:
        key = dice.choice(sorted(inner) if isinstance(inner, dict) else range(len(inner)))
        if not (inner[key] and isinstance(inner[key], (dict, list))) or dice.random() < 0.5:
            break
        inner = inner[key]
    inner[key] = dice.choice([None, "text", [], {}, -1, [[]], 2**70])
    return json.dumps(document).encode()


@pytest.fixture(name="damages")
def damages_fixture() -> Callable[[Path, int], Iterator[bytes]]:
    """Damage a JSON file in many ways."""
    return damages
