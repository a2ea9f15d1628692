"""Tell of a failed nightly: one open issue, a comment for each further night."""

from __future__ import annotations

import json
import shlex
import subprocess

from torchproof.config import project

from ci.read import WorkflowError

TITLE = f"{project().name} fails on the newest torch nightly"


def tell(run: str) -> str:
    """Open the issue, or add to the one that is open; what was done, in one sentence.

    Args:
        run: the address of the run that failed.

    Raises:
        WorkflowError: there is no GitHub's `gh`, or it refused; its words are on standard error.
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
    try:
        done = subprocess.run(
            ["gh", *arguments], stdout=subprocess.PIPE, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise WorkflowError(
            f"an issue is opened with GitHub's gh, which cannot be run ({error}); install it from "
            "cli.github.com"
        ) from None
    if done.returncode:
        raise WorkflowError(f"`gh {shlex.join(arguments)}` failed: its message is above")
    return done.stdout
