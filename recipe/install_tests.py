"""Put the correctness suite into $PREFIX/share/lltm, laid out as in the source.

The tests of the repository's tool and of its examples stay behind: what they test is not in the
package.
"""

import os
import shutil
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ["PREFIX"]) / "share" / "lltm"
NOT_SHIPPED = shutil.ignore_patterns("matrix", "conda", "examples", "__pycache__")

shutil.copytree(SOURCE / "tests", TARGET / "tests", ignore=NOT_SHIPPED)
# pytest's own settings stand there.
shutil.copy2(SOURCE / "pyproject.toml", TARGET)
