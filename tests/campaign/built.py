"""lltm, built with a campaign's own compiler flags in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from record import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ("build_support", "csrc", "lltm", "pyproject.toml", "setup.py", "README.md", "LICENSE")
# Of a library in a source tree, which is none of the sources.
NOT_SOURCES = shutil.ignore_patterns("lib", "__pycache__")


def copy_sources(folder: Path) -> Path:
    """Copy what the wheel is built from to a folder's ``tree``."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=NOT_SOURCES)
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


def replace(path: Path, old: str, new: str) -> None:
    """Change a source, for instance by a bug."""
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{path.name} has no {old!r} to replace")
    path.write_text(text.replace(old, new), encoding="utf-8")


def install(
    folder: Path, binding: str, flags: str, link: str = "", *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Build a folder's ``tree`` without optimisation, and install it to the folder's ``site``."""
    command = (sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps")
    # Compiled in a fifth of the time, and a finding names its line.
    debug = {"LLTM_DEBUG": "1", "LLTM_BINDING": binding}
    done = subprocess.run(
        [*command, "--target", str(folder / "site"), "."],
        cwd=folder / "tree",
        env={**os.environ, **debug, "CFLAGS": flags, "LDFLAGS": link},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise SystemExit(done.stdout[-4000:])
    return done
