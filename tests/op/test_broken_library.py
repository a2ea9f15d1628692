"""A library that the loader refuses: one sentence, with the loader's own reason in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lltm
from lltm import _library

PACKAGE = Path(lltm.__file__).parent


def test_the_loaders_reason_is_told(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "lltm", ignore=shutil.ignore_patterns("__pycache__"))
    library = tmp_path / "lltm" / "lib" / _library.NAMES[sys.platform]
    library.write_bytes(b"no library")
    done = subprocess.run(
        [sys.executable, "-c", "import lltm"],
        cwd=tmp_path,  # comes first on sys.path
        text=True,
        capture_output=True,
        check=False,
    )
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("ImportError: lltm's ")
    assert "file too short" in sentence or "invalid ELF header" in sentence
    assert "rebuild it for this torch" in sentence
