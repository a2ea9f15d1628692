"""`python -m matrix.cuda_report`: registers and spills of every CUDA kernel, as ptxas counts them.

Compiles csrc/cuda for one architecture (`--arch sm_90`) with `-Xptxas -v`; needs nvcc and no GPU.
Exits 1 when a kernel spills.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from matrix.config import ROOT

KERNEL = re.compile(
    r"Function properties for (?P<name>\S+)\s+\d+ bytes stack frame, (?P<stores>\d+) bytes spill "
    r"stores, (?P<loads>\d+) bytes spill loads\s+ptxas info\s+: Used (?P<registers>\d+) registers"
)


@dataclass(frozen=True)
class Kernel:
    """One kernel: its file, name, registers a thread, and bytes spilled to memory."""

    file: str
    name: str
    registers: int
    spilled: int


def kernels(arch: str) -> list[Kernel]:
    """Compile every .cu file and read what ptxas says."""
    found = []
    for source in sorted((ROOT / "csrc" / "cuda").glob("*.cu")):
        command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", "-Xptxas", "-v"]
        done = subprocess.run(
            [*command, "-cubin", "-o", os.devnull, str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"cuda-report: nvcc could not compile {source.name}:\n{done.stderr}")
        for match in KERNEL.finditer(done.stderr):
            spilled = int(match["stores"]) + int(match["loads"])
            found.append(Kernel(source.name, match["name"], int(match["registers"]), spilled))
    return found


def main() -> int:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m matrix.cuda_report", description=__doc__)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = kernels(options.arch)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        table = Table("file", "kernel", "registers", "bytes spilled", title=options.arch)
        for row in rows:
            table.add_row(row.file, row.name, str(row.registers), str(row.spilled))
        Console().print(table)
    return 1 if not rows or any(row.spilled for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
