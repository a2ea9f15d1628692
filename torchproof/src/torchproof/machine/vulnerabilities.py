"""Known vulnerabilities of what the locks hold: pip-audit's answer, "not run" where it has none.

pip-audit passes over a package that its service does not know, and exits with 0: of a service that
cannot be reached, that would be "passed" for every package.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby, zip_longest
from typing import Any

from packaging.version import Version

from torchproof import terminal
from torchproof.machine import lockfiles


def requirements(pins: Iterable[lockfiles.Pin]) -> Iterator[str]:
    """Requirement files with every version of every package, whatever Python it is for.

    pip-audit passes over what a marker excludes, reads no `===`, and refuses a second version.
    """
    versions = sorted({(pin.name, Version(pin.version).public) for pin in pins})
    by_name = [list(same) for _, same in groupby(versions, key=lambda each: each[0])]
    for layer in zip_longest(*by_name):
        yield "".join(f"{each[0]}=={each[1]}\n" for each in layer if each)


def verdict(
    answers: Iterable[subprocess.CompletedProcess[str]],
    accepted: dict[str, str],
    *,
    strict: bool = False,
) -> tuple[int, list[str]]:
    """The exit status and what to print, from pip-audit's JSON and its messages.

    No answer, or one without a package that the service knows, fails where `strict`.
    """
    answers = list(answers)
    given = [_dependencies(answer) for answer in answers]
    audited = [package for packages in given for package in packages or ()]
    unknown = [package["name"] for package in audited if "skip_reason" in package]
    found = [(p, v) for p in audited for v in p.get("vulns", ())]
    lines = [_line(package, each, accepted) for package, each in found]
    silent = [answer for answer, packages in zip(answers, given, strict=True) if packages is None]
    if silent:
        last = silent[0].stderr.strip().rpartition("\n")[2]
        calls = f"{len(silent)} of {len(answers)} calls"
        lines.append(f"not run: pip-audit has no answer to {calls} ({last[:200]})")
    if unknown:
        few = ", ".join(unknown[:3])
        lines.append(f"not run: the service does not know {len(unknown)} of {len(audited)}: {few}")
    open_ones = [each for _, each in found if not _accepted(each, accepted)]
    if not lines:
        lines = [f"passed: {len(audited)} packages have no known vulnerability"]
    unanswered = bool(silent) or len(unknown) == len(audited)
    return (1 if open_ones or (strict and unanswered) else 0), lines


def _dependencies(answer: subprocess.CompletedProcess[str]) -> list[dict[str, Any]] | None:
    """The packages of an answer; None where it is none."""
    try:
        found = json.loads(answer.stdout)["dependencies"]
    except (KeyError, TypeError, ValueError):
        return None
    return found if isinstance(found, list) else None


def _accepted(vulnerability: dict[str, Any], accepted: dict[str, str]) -> str | None:
    names = (vulnerability["id"], *vulnerability.get("aliases", ()))
    return next((accepted[name] for name in names if name in accepted), None)


def _line(package: dict[str, Any], each: dict[str, Any], accepted: dict[str, str]) -> str:
    fixed = ", ".join(each.get("fix_versions", ())) or "no version"
    reason = _accepted(each, accepted)
    status = f"accepted ({reason})" if reason else f"failed, fixed in {fixed}"
    return f"{package['name']} {package['version']}: {each['id']}: {status}"


def audit(requirements: str) -> subprocess.CompletedProcess[str]:
    """Run pip-audit on pinned requirements, which it does not resolve again."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--format=json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(requirements)
        file.flush()
        command += ["--progress-spinner=off", "--requirement", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def acceptance(text: str) -> tuple[str, str]:
    """A vulnerability's name and why it is accepted, of the command line."""
    name, _, reason = text.partition("=")
    if not (name and reason):
        raise argparse.ArgumentTypeError(
            f"expected ID=REASON, such as PYSEC-2026-1='no lock installs it'; got {text!r}"
        )
    return name, reason


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 1 where a vulnerability is neither fixed nor accepted.

    With `--strict`, also where the service has no answer.
    """
    parser = argparse.ArgumentParser(prog="torchproof vulnerabilities", description=__doc__)
    parser.add_argument(
        "--accept", action="append", default=[], type=acceptance, metavar="ID=REASON"
    )
    parser.add_argument("--strict", action="store_true", help="fail where there is no answer")
    chosen = parser.parse_args(argv)
    pins = [pin for file in lockfiles.home().glob("*.txt") for pin in lockfiles.read_file(file)]
    if not pins:
        raise lockfiles.LockError(
            f"{lockfiles.home()} holds no lock; make it with `torchproof lock`"
        )
    code, lines = verdict(map(audit, requirements(pins)), dict(chosen.accept), strict=chosen.strict)
    for line in lines:
        terminal.console(soft_wrap=True).print(line, style="red" if code else None)
    return code
