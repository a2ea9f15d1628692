"""A copy of the installed package that a test may damage, and fresh interpreters that import it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lltm
from lltm import jit
from lltm._integrity import Recorded

SECONDS = 600
"""A fresh interpreter that has not ended by then hangs."""


@dataclass(frozen=True)
class InstalledCopy:
    """``site/lltm``, found before the installed one; ``cache`` is where just-in-time builds go."""

    site: Path
    cache: Path

    @staticmethod
    def make(folder: Path) -> InstalledCopy:
        copy = InstalledCopy(folder / "site", folder / "cache")
        shutil.copytree(
            Path(lltm.__file__).parent, copy.package, ignore=shutil.ignore_patterns("__pycache__")
        )
        if not (copy.package / "csrc").is_dir():  # of a source tree's package
            shutil.copytree(jit.source_directory(), copy.package / "csrc")
        copy.cache.mkdir()
        return copy

    @property
    def package(self) -> Path:
        return self.site / "lltm"

    @property
    def description(self) -> Path:
        return self.package / "lib" / "build.json"

    @property
    def library(self) -> Path:
        return next((self.package / "lib").glob("liblltm.*"))

    def describe(self, **changes: Any) -> None:
        """Change what the library says of itself."""
        fields = json.loads(self.description.read_text(encoding="utf-8"))
        self.description.write_text(json.dumps(fields | changes), encoding="utf-8")

    def record(self) -> None:
        """Note the library's size and hash, which a packager's build leaves out."""
        self.describe(libraries={self.library.name: asdict(Recorded.of(self.library))})

    def environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PYTHONPATH": str(self.site),
            "PATH": os.pathsep.join((scripts, os.environ.get("PATH", ""))),
            "TORCH_EXTENSIONS_DIR": str(self.cache),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment(),
            cwd=self.site,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment() | environment,
            cwd=self.site,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def failed_import(self) -> str:
        """The last line of what ``import lltm`` says when it fails."""
        result = self.run("-c", "import lltm")
        assert result.returncode == 1, result.stdout + result.stderr
        return result.stderr.strip().splitlines()[-1]
