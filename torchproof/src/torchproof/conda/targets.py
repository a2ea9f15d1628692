"""The environments that are really installed: which CPython of this machine beside which torch."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from torchproof.config import Matrix, series
from torchproof.errors import TorchproofError
from torchproof.machine.inventory import Interpreter, Machine, interpreters_folder

# Of a distribution's Python: its files lie among everyone else's, and it knows no site-packages.
SHARED_PREFIX = Path("/usr")


class NoInterpreter(TorchproofError):
    """No CPython of this machine can be made a conda package; the message says what to do."""


@dataclass(frozen=True)
class Target:
    """A CPython, its prefix, and the torch installed beside it."""

    python: Interpreter
    prefix: Path
    torch: str

    @property
    def series(self) -> str:
        """The series of CPython, "3.12"."""
        return series(self.python.version)

    @property
    def tag(self) -> str:
        """The series of CPython as build strings spell it: "py312"."""
        return f"py{self.series.replace('.', '')}"

    @property
    def label(self) -> str:
        """A name for tables: "torch 2.10 + Python 3.12"."""
        return f"torch {series(self.torch)} + Python {self.series}"


def prefix_of(python: Interpreter) -> Path | None:
    """The folder an interpreter is in; None where that is no use to a package."""
    completed = subprocess.run(
        [python.path, "-c", "import sys; print(sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    prefix = Path(completed.stdout.strip())
    headers = prefix / "include" / f"python{series(python.version)}"
    # What `torchproof interpreters` fetched starts by its own libraries, and cannot be moved.
    bound = prefix == SHARED_PREFIX or interpreters_folder() in prefix.parents
    return None if bound or not headers.is_dir() else prefix


def targets(matrix: Matrix, machine: Machine) -> tuple[Target, ...]:
    """Two torches and two Pythons where the machine has them; the first is the one users meet.

    The torch that `stable.headers` names goes beside the running CPython. The oldest supported
    one, on which the recipe builds, goes beside the newest other CPython it has wheels for, or
    beside the running one when there is no other.
    """
    oldest, headers = matrix.supporting("stable")[0], matrix.headers
    usable = {}
    for python in (machine.running, *machine.pythons):
        if series(python.version) in oldest.pythons and series(python.version) not in usable:
            prefix = prefix_of(python)
            if prefix is not None:
                usable[series(python.version)] = (python, prefix)
    running = series(machine.running.version)
    both = [name for name in oldest.pythons if name in headers.pythons]
    if running not in usable or running not in both:
        raise NoInterpreter(
            f"CPython {machine.running.version} ({machine.running.path}) cannot be packaged: it "
            f"must be one of {', '.join(both)}, for which torch {oldest.version} and "
            f"{headers.version} have wheels, and live in a prefix of its own, not in "
            f"{SHARED_PREFIX}, with its headers; run this with one from pyenv, python.org or a "
            "container image"
        )
    first = Target(*usable[running], headers.version)
    other = next((found for name, found in usable.items() if name != running), usable[running])
    return first, Target(*other, oldest.version)
