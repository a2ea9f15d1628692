"""What was predicted of a wheel in a torch, and what happened: of each library, and of the package.

The audit predicts the library, for it reads no Python: the loader shows whether it was right. What
the wheel declares, `Requires-Dist: torch...`, predicts the package: importing it, and running a
program that uses it, show that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Outcomes. A library loads; a package works, or imports where no program uses it; either refuses,
# is wrong, or ends its process.
LOADS, WORKS, IMPORTS = "loads", "works", "imports"
REFUSES, WRONG, ABORTS = "refuses", "wrong", "aborts"
NOT_RUN = "not run"
# Predictions beside LOADS and WORKS.
FAILS, UNSAFE, UNSUPPORTED = "fails", "unsafe", "unsupported"
# From the best to the worst: a package does what the worst of the libraries that it uses does.
SEVERITY = (LOADS, UNSAFE, FAILS)
# What has to happen for a prediction to be right. The loader takes an unsafe library, for every
# symbol is there. A package may catch that its library does not load, and lack its ops, which shows
# when a program uses them; of an unsafe or unsupported one nothing is promised.
OF_LIBRARY = {LOADS: {LOADS}, FAILS: {REFUSES}, UNSAFE: {LOADS, WRONG, ABORTS}}
OF_PACKAGE = {WORKS: {WORKS, IMPORTS}, FAILS: {REFUSES, WRONG, IMPORTS}}
CLEAR = "ImportError: "


@dataclass(frozen=True)
class Trial:
    """One thing that was tried."""

    predicted: str
    reason: str
    outcome: str
    message: str


@dataclass(frozen=True)
class LibraryTrial(Trial):
    """A library under the bare loader; `name` is its path in the wheel.

    `second` is what torch-abi-audit predicts, where that is installed: loads, fails, or nothing.
    """

    name: str = ""
    second: str = ""

    @property
    def as_predicted(self) -> bool:
        """Whether the prediction was right; true of what was not run."""
        return self.outcome == NOT_RUN or self.outcome in OF_LIBRARY[self.predicted]


@dataclass(frozen=True)
class PackageTrial(Trial):
    """The import, then the smoke program.

    A guarded package promises to refuse whatever is not predicted to work, by an ImportError of one
    line.
    """

    guarded: bool = False

    @property
    def as_predicted(self) -> bool:
        """Whether the prediction was right; true where there was none, and of what was not run."""
        if self.outcome == NOT_RUN:
            return True
        if self.guarded and self.predicted != WORKS:
            clear = self.message.startswith(CLEAR) and "\n" not in self.message
            return self.outcome == REFUSES and clear
        return self.outcome in OF_PACKAGE.get(self.predicted, {self.outcome})


@dataclass(frozen=True)
class GridCell:
    """One wheel in one torch."""

    torch: str
    libraries: tuple[LibraryTrial, ...]
    package: PackageTrial

    @property
    def trials(self) -> tuple[LibraryTrial | PackageTrial, ...]:
        """The libraries, then the package."""
        return (*self.libraries, self.package)

    @property
    def as_predicted(self) -> bool:
        """Whether no prediction was wrong."""
        return all(trial.as_predicted for trial in self.trials)

    @property
    def run(self) -> bool:
        """Whether it was tried at all."""
        return self.package.outcome != NOT_RUN

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "torch": self.torch,
            "as_predicted": self.as_predicted,
            "libraries": [_dict(trial) for trial in self.libraries],
            "package": _dict(self.package),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "GridCell":
        """From its JSON values; whether it is as predicted is found again."""
        libraries = tuple(LibraryTrial(**_stated(each)) for each in value["libraries"])
        return cls(value["torch"], libraries, PackageTrial(**_stated(value["package"])))


def _dict(trial: LibraryTrial | PackageTrial) -> dict[str, Any]:
    return {**vars(trial), "as_predicted": trial.as_predicted}


def _stated(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != "as_predicted"}
