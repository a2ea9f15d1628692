"""A cell's kernels put through every check, and the table that comes of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lltm.cells import _kernels
from lltm.cells._definition import Definition
from lltm.cells._kernel_checks import CHECKS, Check


@dataclass(frozen=True)
class Row:
    """One check.

    Attributes:
        check: its name.
        result: ``passed`` or ``FAILED``.
        finding: what was measured or compared, or what is wrong.
        seconds: that it took.
    """

    check: str
    result: str
    finding: str
    seconds: float


@dataclass(frozen=True)
class Proof:
    """What :func:`prove` found; prints as a table.

    Attributes:
        cell: its name.
        kernels: whether it has kernels; without them the step itself was checked.
        rows: one for each check.
    """

    cell: str
    kernels: bool
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """Whether the cell has kernels and every check has passed."""
        return self.kernels and all(row.result == "passed" for row in self.rows)

    def __str__(self) -> str:
        width = max(len(row.check) for row in self.rows)
        lines = [
            f"{row.check:<{width}}  {row.result}  {row.seconds:5.1f} s  {row.finding}"
            for row in self.rows
        ]
        end = "" if self.kernels else "; there are NO KERNELS, the reference was checked"
        count = sum(row.result == "passed" for row in self.rows)
        return "\n".join([*lines, f"{self.cell}: {count} of {len(lines)} checks passed{end}"])


def _row(name: str, check: Check, cell: Definition, device: str) -> Row:
    start = time.perf_counter()
    try:
        result, finding = "passed", check(cell, device)
    except Exception as error:
        result = "FAILED"
        finding = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return Row(name, result, finding, time.perf_counter() - start)


@contextlib.contextmanager
def _modes_of_its_own(device: torch.device | str) -> Iterator[None]:
    """With gradients and without a cast, whatever function for inference this is called in."""
    off = torch.autocast(torch.device(device).type, enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), off:
        yield


def prove(cell: Definition, device: torch.device | str = "cpu") -> Proof:
    """Put a cell's kernels through the checks of the cells that ship, and print a table.

    Forward and every gradient in each dtype against the step in float64, beside eager PyTorch's own
    error; few rows, no bias, the input's weights in a tensor of their own, a single step, memory
    layouts, first and second derivatives, forward mode, vmap, the same bits on any number of
    threads, opcheck, torch.compile and torch.export. Most of it three times: without resets, with
    resets to zeros, and with resets to states. Takes seconds, after the cell is compiled.

    Args:
        cell: what :func:`lltm.cells.define` returned. Its states are tried with positive values.
        device: whose kernels, ``cpu`` or ``cuda``.

    Returns:
        The table's rows; ``passed`` is whether the cell has kernels and all checks passed.

    Raises:
        TypeError: ``cell`` is no cell.
        ValueError: ``device`` is one that there are never kernels for, or torch sees no GPU.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be cpu, as torch sees no GPU here, got {device}")
    kernels = _kernels.prepare(cell, device)
    with _modes_of_its_own(device):
        rows = tuple(_row(name, check, cell, str(device)) for name, check in CHECKS.items())
    proof = Proof(cell.name, kernels, rows)
    print(proof)
    return proof
