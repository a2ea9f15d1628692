"""Put the correctness suite into $PREFIX/share/lltm, laid out as in the source.

The tests of the repository's tool, of its examples and of the CUDA kernels' sources on a shim stay
behind: what they test is not in the package.
"""

import os
import shutil
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ["PREFIX"]) / "share" / "lltm"
NOT_SHIPPED = shutil.ignore_patterns(
    "__pycache__", "conda", "cuda_shim", "examples", "test_cuda_shim.py"
)

shutil.copytree(SOURCE / "tests", TARGET / "tests", ignore=NOT_SHIPPED)
# pytest's own settings stand there.
shutil.copy2(SOURCE / "pyproject.toml", TARGET)
