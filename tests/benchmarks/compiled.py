"""C++ of the benchmarks, compiled once and kept where temporary files are."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path


def load(
    name: str, sources: Sequence[Path], flags: Iterable[str], read: Iterable[Path]
) -> ctypes.CDLL:
    """The library of some sources, by the compiler in CXX or g++.

    Args:
        name: what the file is called, beside what tells it from other versions.
        sources: what to compile.
        flags: of the compiler, beside those of any shared library.
        read: every file that the result depends on.
    """
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, *flags, "-shared", "-fPIC", "-pthread", *map(str, sources)]
    digest = hashlib.sha256(repr(command).encode())
    for file in sorted(read):
        digest.update(file.read_bytes())
    path = Path(tempfile.gettempdir()) / f"lltm_{name}_{os.getuid()}_{digest.hexdigest()[:16]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            subprocess.run([*command, "-o", str(made)], check=True)
            made.replace(path)
    return ctypes.CDLL(str(path))
