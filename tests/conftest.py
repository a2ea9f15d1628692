"""What the tests of the repository's own parts share."""

from __future__ import annotations

import sys
from pathlib import Path

from installed_wheel import one_thread  # noqa: F401 - a fixture

sys.path.append(str(Path(__file__).parents[1]))  # last: `import lltm` is the installed one
