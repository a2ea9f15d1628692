"""What a check is given, and what it answers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal

from torchproof.audit.against import Verdict
from torchproof.audit.artifact import Artifact, Member
from torchproof.audit.elf import Elf
from torchproof.audit.facts import Facts
from torchproof.audit.policy import Policy

Status = Literal["passed", "failed", "not run"]

VISIBLE = 5  # names listed in a message


@dataclass(frozen=True)
class Outcome:
    """What a check found; `expected` is the bound it was held to, or why it was not run."""

    status: Status
    found: str
    expected: str = ""


@dataclass(frozen=True)
class Subject:
    """One library under audit and all that a rule may ask about it.

    `others` are the rest of the artifact's libraries, each with its facts.
    """

    artifact: Artifact
    member: Member
    elf: Elf
    facts: Facts
    policy: Policy
    verdicts: tuple[Verdict, ...]
    others: tuple[tuple[Elf, Facts], ...] = ()


def passed(found: str, expected: str = "") -> Outcome:
    """The rule holds."""
    return Outcome("passed", found, expected)


def failed(found: str, expected: str = "") -> Outcome:
    """The rule is broken."""
    return Outcome("failed", found, expected)


def not_run(found: str, because: str) -> Outcome:
    """The rule could not be checked."""
    return Outcome("not run", found, because)


def judged(holds: bool, found: str, expected: str) -> Outcome:
    """Passed or failed."""
    return passed(found, expected) if holds else failed(found, expected)


def listed(names: Iterable[str], write: Callable[[str], str] = str) -> str:
    """The first names of a list as `write` writes them, and how many more there are."""
    all_names = list(names)
    more = len(all_names) - VISIBLE
    shown = ", ".join(write(name) for name in all_names[:VISIBLE])
    return shown + (f" and {more} more" if more > 0 else "")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of some shell patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)
