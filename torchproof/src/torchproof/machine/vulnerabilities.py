"""Known vulnerabilities of what the locks hold: pip-audit's answer, "not run" where it has none.

    python -m torchproof.machine.vulnerabilities [--accept ID=REASON ...]

pip-audit passes over a package that its service does not know, and exits with 0: of a service that
cannot be reached, that would be "passed" for every package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchproof import config, terminal
from torchproof.machine.lockfiles import COMMON

TORCH = "torch-*.txt"


def verdict(output: str, error: str, accepted: dict[str, str]) -> tuple[int, list[str]]:
    """The exit status and what to print, from pip-audit's JSON and its messages."""
    try:
        audited = json.loads(output)["dependencies"]
    except ValueError:
        last = error.strip().rpartition("\n")[2]
        return 0, [f"not run: pip-audit has no answer ({last[:200]})"]
    unknown = [package["name"] for package in audited if "skip_reason" in package]
    found = [(p, v) for p in audited for v in p.get("vulns", ())]
    lines = [_line(package, each, accepted) for package, each in found]
    if unknown:
        few = ", ".join(unknown[:3])
        lines.append(f"not run: the service does not know {len(unknown)} of {len(audited)}: {few}")
    open_ones = [each for _, each in found if not _accepted(each, accepted)]
    if not lines:
        lines = [f"passed: {len(audited)} packages have no known vulnerability"]
    return (1 if open_ones else 0), lines


def _accepted(vulnerability: dict[str, Any], accepted: dict[str, str]) -> str | None:
    names = (vulnerability["id"], *vulnerability.get("aliases", ()))
    return next((accepted[name] for name in names if name in accepted), None)


def _line(package: dict[str, Any], each: dict[str, Any], accepted: dict[str, str]) -> str:
    fixed = ", ".join(each.get("fix_versions", ())) or "no version"
    reason = _accepted(each, accepted)
    status = f"accepted ({reason})" if reason else f"failed, fixed in {fixed}"
    return f"{package['name']} {package['version']}: {each['id']}: {status}"


def audit(file: Path) -> subprocess.CompletedProcess[str]:
    """Run pip-audit on a lock, which it does not resolve again."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--format=json"]
    command += ["--progress-spinner=off", "--requirement", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Run the command line; 1 where a vulnerability is neither fixed nor accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accept", action="append", default=[], metavar="ID=REASON")
    chosen = parser.parse_args()
    accepted = dict(text.split("=", 1) for text in chosen.accept)
    folder = Path(config.ROOT, config.project().locks)
    console = terminal.console(soft_wrap=True)
    worst = 0
    for file in (folder / COMMON, *sorted(folder.glob(TORCH))):
        done = audit(file)
        code, lines = verdict(done.stdout, done.stderr, accepted)
        worst = max(worst, code)
        for line in lines:
            console.print(f"{file.name}: {line}", style="red" if code else None)
    return worst


if __name__ == "__main__":
    sys.exit(main())
