"""Run by the interpreter of an environment: ``probe.py PROGRAM``.

Runs a program, and prints what came of it: JSON, on the last line of standard output.
"""

from __future__ import annotations

import json
import sys


def outcome(program: str) -> tuple[str, str]:
    """Whether a program ran; a library that does not load is an ImportError or an OSError."""
    try:
        # The user's own program, as `python -c` runs it.
        exec(program, {"__name__": "__main__"})  # nosec B102
    except (ImportError, OSError) as error:
        return "refuses", f"{type(error).__name__}: {error}"
    except Exception as error:  # whatever a wrong binary raises is the finding
        return "loads but wrong", f"{type(error).__name__}: {error}"
    return "loads", ""


if __name__ == "__main__":
    found, reason = outcome(sys.argv[1])
    print(json.dumps({"outcome": found, "reason": reason}))
