"""C++ of the benchmarks, compiled once and kept where torch's extensions are.

Not among temporary files: another user could have put a library there first.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from lltm import jit


def load(
    name: str, sources: Sequence[Path], flags: Iterable[str], read: Iterable[Path]
) -> ctypes.CDLL:
    """The library of some sources, by the compiler in CXX or g++.

    Args:
        name: what the file is called, beside the hash of its sources.
        sources: what to compile.
        flags: of the compiler, beside those of any shared library.
        read: every file that the result depends on.
    """
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, *flags, "-shared", "-fPIC", "-pthread", *map(str, sources)]
    digest = hashlib.sha256(repr((command, jit.processor())).encode())
    for file in sorted(read):
        digest.update(file.read_bytes())
    path = jit.cache_directory() / f"lltm_{name}_{digest.hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            subprocess.run([*command, "-o", str(made)], check=True)
            made.replace(path)
    return ctypes.CDLL(str(path))
