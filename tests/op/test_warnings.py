"""The one test that a new warning of torch breaks; pyproject.toml lets the others pass over it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

KNOWN = (
    # torch scripts some of its own functions, for forward mode.
    r"(Deprecation|Future)Warning: `torch\.jit\.script`",
    # Of CPython 3.13.0 itself, whatever is compiled there.
    r"RuntimeWarning: Guards may run slower on Python 3\.13\.0\.",
)


@pytest.mark.subprocess
def test_torch_gives_no_new_warning() -> None:
    program = Path(__file__).with_name("warned.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout.splitlines()[-1])
    new = [text for text in given if not any(re.match(known, text) for known in KNOWN)]
    assert not new, f"torch {torch.__version__} warns of what lltm does: {new}"
