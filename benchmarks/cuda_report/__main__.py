"""`python -m benchmarks.cuda_report`: every kernel of every cell, for every architecture.

Compiles csrc/cuda with `-Xptxas -v` for each cell that ships and each architecture in matrix.toml,
and disassembles it; needs nvcc and no GPU. Exits 1 when a kernel spills, or lacks the wide accesses
it was written for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text
from torchproof.arguments import count
from torchproof.audit.architectures import images_of
from torchproof.files import write_json

from benchmarks.cuda_report import kernels
from benchmarks.cuda_report.kernels import Kernel, NotCompiled
from benchmarks.cuda_report.units import Unit, units
from torchproof import config, terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

REPORT = config.ROOT / "build" / "cuda-report" / "report.json"
LEGEND = (
    "Over the dtypes, sizes and architectures, from the least to the most: registers a thread; "
    "shared: bytes its source fixes; loads and stores of 16 bytes from and to global memory, loads "
    "of 16 bytes from shared memory. The products between the kernels are cuBLAS's, which has the "
    "tensor cores."
)


def declared(release: str) -> tuple[str, ...]:
    """What matrix.toml has a CUDA release build, such as ``sm_90`` and, for PTX, ``compute_90``.

    Raises:
        NotCompiled: it does not name the release.
    """
    known = {row.version: row.architectures for row in config.load().cuda}
    if release not in known:
        raise NotCompiled(
            f"matrix.toml has architectures for CUDA {', '.join(known)}, nvcc is of {release}; "
            "name some with --arch"
        )
    return images_of(known[release])


def measure(images: Sequence[str], jobs: int, console: Console) -> list[Kernel]:
    """Compile everything for every architecture, with a line for each that is done."""

    def compile_one(unit: Unit, image: str) -> list[Kernel]:
        if image.startswith("compute"):
            kernels.compile_ptx(unit, image)
            return []
        return kernels.compiled(unit, image)

    found: list[Kernel] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=jobs) as pool:
        work = list(itertools.product(units(Path(folder)), images))
        results = pool.map(lambda each: compile_one(*each), work)
        for done, ((unit, image), came) in enumerate(zip(work, results, strict=True), start=1):
            console.print(f"[{done}/{len(work)}] {unit.cell} {unit.source.name} {image}")
            found += came
    return found


def table(found: Iterable[Kernel]) -> Table:
    """A line for each kernel, of all its dtypes and sizes."""

    def key(kernel: Kernel) -> tuple[str, str, str]:
        return kernel.cell, kernel.file, kernel.name.partition("<")[0]

    made = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("cell", "file", "kernel"):
        made.add_column(heading, no_wrap=True)
    for heading in ("registers", "spilled", "shared", "loads", "stores", "shared loads", "tensor"):
        made.add_column(heading, justify="right")
    for names, group in itertools.groupby(sorted(found, key=key), key):
        each = list(group)
        figures = (
            [kernel.registers for kernel in each],
            [kernel.spilled for kernel in each],
            [kernel.shared for kernel in each],
            [kernel.vector_loads for kernel in each],
            [kernel.vector_stores for kernel in each],
            [kernel.shared_vectors for kernel in each],
            [kernel.tensor_cores for kernel in each],
        )
        style = "red" if any(kernel.faults() for kernel in each) else ""
        texts = (*names, *map(span, figures))
        made.add_row(*(Text(text, style=style) for text in texts))
    return made


def span(values: Sequence[int]) -> str:
    """From the least to the most."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def main(argv: list[str] | None = None) -> int:
    """Print the table, or JSON; 1 when something is wrong with a kernel, 2 when none was made."""
    parser = argparse.ArgumentParser(prog="nox -s cuda-report --", description=__doc__)
    parser.add_argument(
        "--arch", action="append", metavar="sm_90", help="only this one; may be given again"
    )
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    options = parser.parse_args(argv)
    console = terminal.console(stderr=options.json, wide=True)
    try:
        release = kernels.nvcc().release
        images = tuple(options.arch or declared(release))
        found = measure(images, options.jobs, console)
    except NotCompiled as error:
        console.print(f"cuda-report: {error}", style="red")
        return 2
    faults = [
        f"{kernel.cell} {kernel.file} {kernel.name} on {kernel.architecture}: {fault}"
        for kernel in found
        for fault in kernel.faults()
    ]
    document = {
        "cuda": release,
        "images": images,
        "kernels": [asdict(kernel) for kernel in found],
        "faults": faults,
    }
    write_json(REPORT, document)
    if options.json:
        print(json.dumps(document, indent=1))
    console.print(table(found))
    console.print(LEGEND, style="dim")
    for fault in faults:
        console.print(fault, style="red")
    words = f"{len(found)} kernels for {', '.join(images)}: {len(faults) or 'no'} faults"
    console.print(f"{words}; {os.path.relpath(REPORT, config.ROOT)}")
    return 1 if faults or not found else 0


if __name__ == "__main__":
    sys.exit(main())
