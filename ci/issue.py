"""Tell of a failed nightly: one open issue, a comment for each further night."""

from __future__ import annotations

import json
import subprocess

from torchproof.config import project

TITLE = f"{project().name} fails on the newest torch nightly"


def tell(run: str) -> str:
    """Open the issue, or add to the one that is open; what was done, in one sentence.

    Args:
        run: the address of the run that failed.

    Raises:
        subprocess.CalledProcessError: GitHub's `gh` refused; its words are on standard error.
    """
    body = f"The run {run} failed; its log says how."
    listed = _gh(
        "issue", "list", "--state", "open", "--search", f'"{TITLE}" in:title', "--json", "number"
    )
    found = [str(issue["number"]) for issue in json.loads(listed)]
    if found:
        _gh("issue", "comment", found[0], "--body", body)
        return f"added to issue {found[0]}"
    _gh("issue", "create", "--title", TITLE, "--body", body)
    return "opened an issue"


def _gh(*arguments: str) -> str:
    return subprocess.run(["gh", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
