"""Functors compiled without a kernel, to be called from Python."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path


def library_of(text: str, folder: Path) -> ctypes.CDLL:
    """A library of C++ that has no warnings."""
    source, library = folder / "cells.cpp", folder / "cells.so"
    source.write_text(text, encoding="utf-8")
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", "-Wall"]
    warnings = ["-Wno-unused-variable", "-Werror"]
    files = [str(source), "-o", str(library)]
    done = subprocess.run(
        [*command, *warnings, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + text
    return ctypes.CDLL(str(library))
