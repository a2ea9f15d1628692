"""What a run may measure: the table behind the options of `nox -s bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchproof.config import ROOT

from benchmarks import gpu_cases
from benchmarks.runs.figures import CELLS, OPS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BUILD = ROOT / "build"


@dataclass(frozen=True)
class Scope:
    """A run.

    Attributes:
        name: its option, and what the races call its rows.
        what: it measures, for people.
        whole: the scope that measures every row of the same kind; it is what a record keeps.
        ops, dtypes, threads: of its rows.
        cases: of each op, where a process measures one of them; else it measures all.
        seconds: to time each row, unless the user gives others.
        races: the file in ``benchmarks``.
    """

    name: str
    what: str
    whole: str
    ops: tuple[str, ...] = OPS
    dtypes: tuple[str, ...] = ("float32",)
    threads: tuple[str, ...] = ("1",)
    seconds: float = 1.0
    races: str = "bench_race.py"
    cases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether its runs may be records."""
        return self.name == self.whole

    @property
    def folder(self) -> Path:
        """Where a run leaves what it made."""
        return BUILD / ("bench" if self.whole == "full" else f"bench-{self.whole}")


QUICK = Scope(
    "quick",
    "float32 on one thread, sequences without torch.compile (the default)",
    whole="full",
)
FULL = Scope(
    "full",
    "every row there is",
    whole="full",
    dtypes=("float32", "float64", "bfloat16", "float16"),
    threads=("1", "2"),
)
CUDA = Scope(
    "cuda",
    "every row on a GPU; what `nox -s bench-cuda` runs",
    whole="cuda",
    dtypes=("float32", "bfloat16", "tf32"),
    # Minutes each, on a machine that is often lent for minutes: what has ended is kept.
    cases=gpu_cases.BY_OP,
)
SWEEP = Scope(
    "sweep",
    "eager and ours over batches of 1 to 256 and sizes of 16 to 1024, odd ones too, as heat maps; "
    "float32 and bfloat16 on one thread, about five minutes on an AMD Zen 4",
    whole="sweep",
    dtypes=("float32", "bfloat16"),
    seconds=0.1,
)
OF_CELLS = Scope(
    "cells",
    "each cell of lltm.cells against eager, torch.compile, JAX and torch's own module; float32 on "
    "one thread, about twenty minutes",
    whole="cells",
    ops=CELLS,
    races="bench_cells.py",
)
SCOPES = {scope.name: scope for scope in (QUICK, FULL, CUDA, SWEEP, OF_CELLS)}
