"""Put the correctness suite into $PREFIX/share/lltm, laid out as in the source."""

import os
import shutil
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ["PREFIX"]) / "share" / "lltm"

shutil.copytree(
    SOURCE / "tests" / "op",
    TARGET / "tests" / "op",
    ignore=shutil.ignore_patterns("__pycache__"),
)
# pytest's own settings stand there.
shutil.copy2(SOURCE / "pyproject.toml", TARGET)
