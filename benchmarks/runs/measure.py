"""Measure: a process for each op, dtype and thread count, its result kept as soon as it ends.

The races need torch, which this tool never imports; and a process of its own gives each thread
count fresh thread pools (JAX has no other way) and each compiler a fresh cache in memory.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchproof.config import ROOT, project
from torchproof.files import kernels_hash, source_hash, text_hash
from torchproof.machine import processes, processor

from benchmarks.runs.figures import FIELDS, BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.runs.scopes import Scope

BENCHMARKS = ROOT / "benchmarks"


def check_kernels(package: Path) -> None:
    """A record names this tree's kernels, so that others are not measured for it.

    Args:
        package: the installed lltm's folder, with the sources that its kernels were built from.

    Raises:
        BenchError: the sources differ, or are not there.
    """
    if kernels_hash(package) != kernels_hash():
        raise BenchError(
            "--write: the installed lltm was built from other kernels than this tree's; install "
            "this tree's, as `nox -s bench` does without -R"
        )


def installed_package() -> Path:
    """Where pip has put the lltm that is raced; by its name the tree's own would be found."""
    return Path(sysconfig.get_path("platlib"), "lltm")


def measured() -> tuple[str, ...]:
    """What the figures are of, beside the sources: the installed lltm and torch, the processor."""
    description = installed_package() / "lib" / "build.json"
    return (
        description.read_text(encoding="utf-8") if description.is_file() else "",
        importlib.metadata.version("torch"),
        sys.version,
        repr(processor.read()),
    )


@dataclass(frozen=True)
class Part:
    """What one process measures: of one case, or of all."""

    op: str
    dtype: str
    threads: str
    case: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """What its rows have in common."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def name(self) -> str:
        """Such as ``cell-float32-1``."""
        return "-".join(self.fields.values())

    @property
    def select(self) -> str:
        """The rows as the races select them."""
        return ",".join(f"{name}={value}" for name, value in self.fields.items())


def parts(scope: Scope, select: str | None) -> Iterator[Part]:
    """The parts of a scope that a selection leaves.

    Raises:
        BenchError: it leaves none.
    """
    wanted = dict(each.partition("=")[::2] for each in select.split(",")) if select else {}
    if unknown := sorted(wanted.keys() - {*FIELDS}):
        raise BenchError(f"--select {select}: {unknown[0]!r} is none of {', '.join(FIELDS)}")
    found = [
        Part(op, dtype, threads, case)
        for threads, dtype, op in itertools.product(scope.threads, scope.dtypes, scope.ops)
        for case in scope.cases.get(op, (None,))
    ]
    left = [
        part
        for part in found
        if all(wanted.get(key, value) == value for key, value in part.fields.items())
    ]
    if not left:
        raise BenchError(
            f"--select {select} leaves nothing of --{scope.name}, which has "
            f"{'; '.join(part.select for part in found)}"
        )
    yield from left


@dataclass(frozen=True)
class Measured:
    """What came of a part.

    Attributes:
        document: pytest-benchmark's JSON; None where the selection leaves the part no row.
        right: whether every result was right.
    """

    document: dict[str, Any] | None
    right: bool


@dataclass(frozen=True)
class Measurer:
    """Runs parts.

    Attributes:
        folder: where results lie.
        scope: whose parts they are.
        seconds: for each row.
        select: further selection, as the user gave it.
        compilers: whether torch.compile races, too.
    """

    folder: Path
    scope: Scope
    seconds: float
    select: str | None
    compilers: bool = True

    def result(self, part: Part) -> Path:
        """Where a part's JSON lies; the name changes with what is measured, by what, and how."""
        key = text_hash(source_hash(*project().sources, "benchmarks", "tests/op"), *measured())[:12]
        options = f"{self.scope.name}-{self.seconds:g}-{self.select or 'all'}".replace("/", "_")
        options += "" if self.compilers else "-without-compilers"
        return self.folder / "raw" / f"{part.name}-{options}-{key}.json"

    def environment(self) -> dict[str, str]:
        """A process's environment: compiled kernels are kept between runs, and in the folder."""
        return {
            "TORCH_EXTENSIONS_DIR": str(self.folder / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            **processes.inherited(),
        }

    def measure(self, part: Part) -> Measured:
        """Race a part's rows.

        Raises:
            BenchError: the process ended without a result.
        """
        path = self.result(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".partial")
        made.unlink(missing_ok=True)
        select = part.select + (f",{self.select}" if self.select else "")
        command = [
            *(sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--benchmark-quiet"),
            # The selection may leave a part no row, which is no error.
            *("-W", "ignore:Not saving anything"),
            *("--rows", self.scope.name, "--select", select),
            *(() if self.compilers else ("--without-compilers",)),
            f"--benchmark-max-time={self.seconds:g}",
            *(f"--benchmark-json={made}", str(BENCHMARKS / self.scope.races)),
        ]
        # Not the repository's root: Python would look for lltm there first.
        status = processes.run_here(
            command, sys.stderr.buffer, cwd=path.parent, env=self.environment()
        )
        document = read(made)
        if status == 0 and document is not None:
            made.replace(path)
        elif status != 0 and document is None:
            raise BenchError(
                f"the races of {part.name} ended with status {status} and no result; "
                "their messages are above; --resume continues"
            )
        return Measured(document, right=status == 0)


def read(path: Path) -> dict[str, Any] | None:
    """A part's JSON; None where there is none, or it holds no race."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return value if value.get("benchmarks") else None


NO_GPU = """
import torch
from lltm import _library
if not torch.cuda.is_available():
    print("no CUDA device")
elif not _library.load_cuda():
    print(_library.missing_cuda())
"""


def gpu_unavailable_reason() -> str | None:
    """Why nothing can be measured on a GPU here, as one clause, or None."""
    # Not the repository's root: Python would look for lltm there first.
    completed = subprocess.run(
        [sys.executable, "-c", NO_GPU],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        return completed.stderr.strip().rpartition("\n")[2]
    return completed.stdout.strip() or None
