"""A look at a few rows while a kernel is being written: ``inner_loop.py sequence 64x16x32x128``.

A script, so that it needs nothing but an installed lltm::

    python benchmarks/inner_loop.py cell
    python benchmarks/inner_loop.py sequence 64x16x32x128 --work forward+backward --jit

The figures of record are those of ``nox -s bench``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT / "tests" / "op")
sys.path.append(str(ROOT))  # last: `import lltm` is the installed one

import torch
from cases import BENCHMARK_CASES

import lltm
from benchmarks import competitors, contest, floors, workloads


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("op", choices=["cell", "sequence"])
    known = {case.name for case in BENCHMARK_CASES}
    parser.add_argument("case", nargs="*", help=f"of {', '.join(sorted(known))}; default: first")
    works = [work.name for work in workloads.WORKS]
    parser.add_argument("--work", action="append", choices=works, help="default: every")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row (%(default)s)")
    parser.add_argument("--only", help="competitors, with commas between; eager always runs")
    parser.add_argument("--compile", action="store_true", help="with torch.compile: slow to start")
    parser.add_argument("--jit", action="store_true", help="with lltm.jit's native binding, aten")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[competitors.Competitor]:
    everyone = competitors.everyone()
    if options.only:
        names = [competitors.EAGER.name, *options.only.split(",")]
        return [competitor for competitor in everyone if competitor.name in names]
    return [c for c in everyone if options.compile or c.name not in competitors.SLOW]


def show(held: contest.Contest) -> None:
    eager = held.seconds[competitors.EAGER.name]
    print(f"\n{held.row.name}  ({len(eager)} rounds)")
    print(f"{'':16}{'us':>10}{'x eager':>9}{'+-':>6}{'of blas':>9}{'of fma':>8}{'saved kB':>10}")
    for name, seconds in held.seconds.items():
        time_us = 1e6 * contest.middle(seconds)[0]
        ratio, spread = contest.middle(over(eager, seconds))
        blas = contest.middle(over(seconds, held.seconds[floors.BLAS]))[0]
        fma = contest.middle(over(seconds, held.seconds[floors.FMA]))[0]
        saved = f"{held.saved_bytes[name] / 1e3:.1f}" if name in held.saved_bytes else ""
        print(f"{name:16}{time_us:10.1f}{ratio:9.2f}{spread:6.2f}{blas:9.2f}{fma:8.2f}{saved:>10}")
    for name, reason in held.wrong.items():
        print(f"{name}: WRONG, not timed\n{reason}")


def over(left: list[float], right: list[float]) -> list[float]:
    """Ratios, round by round."""
    return [a / b for a, b in zip(left, right, strict=True)]


def main() -> None:
    options = arguments()
    if options.jit:
        competitors.load_native()
    cases = [case for case in BENCHMARK_CASES if case.op == options.op]
    names = options.case or [cases[0].name]
    if unknown := sorted({*names} - {case.name for case in cases}):
        known = ", ".join(case.name for case in cases)
        raise SystemExit(f"inner_loop.py: {options.op} has no case {unknown[0]}; it has {known}")
    works = options.work or [work.name for work in workloads.WORKS]
    print(f"{lltm.__file__} on {torch.ops.lltm.cpu_capability()}, load {os.getloadavg()[0]:.1f}")
    start = time.perf_counter()
    for row in workloads.full():
        if (
            row.case.op == options.op
            and row.case.name in names
            and row.work.name in works
            and row.threads == options.threads
            and row.dtype == getattr(torch, options.dtype)
        ):
            held = contest.hold(row, chosen(options), options.seconds)
            contest.weigh(held, chosen(options))
            show(held)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
