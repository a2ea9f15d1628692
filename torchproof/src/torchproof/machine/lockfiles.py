"""Locks: what an environment installs, each package with one version and the hashes of its files.

They are requirement files of pip's, made by uv for every Python and platform at once. `common.txt`
has what every torch's environment holds, `torch-2.13.0.txt` what only that torch's does. No address
of an index is in them: pip and uv take each file from where they are configured to.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchproof.config import ROOT, project
from torchproof.errors import TorchproofError

COMMON = "common.txt"
# Beside the project's own groups: what builds and tests conda packages without conda.
ALWAYS = ("ninja", "pip", "setuptools>=77", "wheel")
HASH = "--hash="


class LockError(TorchproofError):
    """A lock is missing, or is none."""


@dataclass(frozen=True)
class Pin:
    """A package at one version; a marker says in which environments."""

    requirement: Requirement
    hashes: frozenset[str]

    @property
    def name(self) -> str:
        """As indexes spell it."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The one version."""
        (only,) = self.requirement.specifier
        return only.version

    @property
    def text(self) -> str:
        """As pip reads it."""
        return " \\\n    ".join((str(self.requirement), *(HASH + h for h in sorted(self.hashes))))


@dataclass(frozen=True)
class Lock:
    """The pins of one torch's environments.

    Attributes:
        torches: the builds of torch, those that only some indexes offer first; one is installed.
        pins: all else.
    """

    torches: tuple[Pin, ...]
    pins: tuple[Pin, ...]

    @classmethod
    def of(cls, pins: Iterable[Pin]) -> "Lock":
        """A lock of some pins."""
        pins = tuple(pins)
        torches = [pin for pin in pins if pin.name == "torch"]
        torches.sort(key=lambda pin: "+" not in pin.version)
        return cls(tuple(torches), tuple(pin for pin in pins if pin.name != "torch"))

    @property
    def key(self) -> str:
        """All that is in it."""
        return "".join(pin.text for pin in self.torches) + self.text()

    def text(self, keep: Callable[[str], bool] = lambda _: True) -> str:
        """A requirement file of the packages beside torch whose names are kept."""
        return "".join(pin.text + "\n" for pin in self.pins if keep(pin.name))

    def unmet(self, requirements: Iterable[str]) -> list[str]:
        """The requirements that no pin meets."""
        return [text for text in requirements if not self._meets(Requirement(text))]

    def _meets(self, requirement: Requirement) -> bool:
        name = canonicalize_name(requirement.name)
        pins = (*self.torches, *self.pins)
        versions = [pin.version for pin in pins if pin.name == name]
        return any(requirement.specifier.contains(v, prereleases=True) for v in versions)


def parse(text: str) -> tuple[Pin, ...]:
    """The pins in a requirement file."""
    found = []
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        words = entry.split()
        stated = " ".join(word for word in words if not word.startswith(HASH))
        if not stated:
            continue
        pin = Pin(Requirement(stated), frozenset(w[len(HASH) :] for w in words if HASH in w))
        operators = [only.operator for only in pin.requirement.specifier]
        if operators not in (["=="], ["==="]) or not pin.hashes:
            raise LockError(
                f"{stated}: expected one version and a hash; make it with `torchproof lock`"
            )
        found.append(pin)
    return tuple(found)


def home() -> Path:
    """The folder of the project's locks."""
    if not project().locks:
        raise LockError("matrix.toml: expected project.locks, the folder of the locks")
    return ROOT / project().locks


def files(folder: Path, torch: str) -> tuple[Path, ...]:
    """What the lock of a torch's environments is read from."""
    return folder / COMMON, folder / f"torch-{torch}.txt"


def read(folder: Path, torch: str) -> Lock:
    """The lock of a torch's environments."""
    return Lock.of(pin for file in files(folder, torch) for pin in read_file(file))


def read_file(file: Path) -> tuple[Pin, ...]:
    """The pins in a file; LockError names one that is missing or damaged."""
    try:
        return parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # InvalidRequirement is a ValueError
        reason = " ".join(str(error).split())
        raise LockError(f"{file}: {reason}; make it with `torchproof lock`") from error


def split(locks: dict[str, tuple[Pin, ...]]) -> tuple[tuple[Pin, ...], dict[str, tuple[Pin, ...]]]:
    """What all torches' pins have in common, and each torch's own."""
    first, *others = locks.values()
    common = tuple(pin for pin in first if all(pin in pins for pins in others))
    own = {torch: tuple(pin for pin in pins if pin not in common) for torch, pins in locks.items()}
    return common, own
