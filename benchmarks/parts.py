"""Where a sequence's forward and backward pass spend their time: ``parts.py [TxBxFxS...]``.

The very functions that the op calls, each timed by itself in float32 on one thread, beside the same
products by :func:`torch.mm` into buffers made before, and beside the products' time at the
machine's measured peak rate of multiply-adds. What is left between a part and its product is what
another kernel could win. Needs an installed lltm, for its sources, and g++::

    python benchmarks/parts.py 64x16x32x128 --json parts.json
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).parents[1]
    sys.path[0] = str(ROOT / "tests" / "op")
    sys.path.append(str(ROOT))  # last: `import lltm` is the installed one

import torch
from cases import BENCHMARK_CASES, Case
from torch import Tensor
from torch.utils import cpp_extension

from benchmarks import compiled, floors
from benchmarks.floors import Product
from lltm import jit

SOURCE = Path(__file__).with_name("parts.cpp")
SIZES = ("steps", "batch", "features", "state")
ARRAYS = (
    *("input", "weights", "bias", "h0", "c0", "grad_output"),
    *("gates", "output", "cells", "c_n"),
    *("d_z", "d_input", "d_weights", "d_bias"),
)


class Problem(ctypes.Structure):
    """As parts.cpp lays it out."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in ARRAYS),
    ]


@dataclass(frozen=True)
class Part:
    """A part of the work.

    Attributes:
        name: in words.
        function: of parts.cpp.
        product: what it multiplies; None where it does not.
        within: the function it is a share of, already counted there.
    """

    name: str
    function: str
    product: Product | None = None
    within: str | None = None


@dataclass(frozen=True)
class Timed:
    """Median microseconds of a part, and of its product by BLAS and at the peak rate."""

    part: str
    microseconds: float
    blas: float | None
    peak: float | None
    counted: bool


def parts_of(case: Case, *, steps_multiply_input: bool) -> tuple[Part, ...]:
    """The parts of a sequence, in the order they run in.

    Args:
        case: the sequence.
        steps_multiply_input: whether the steps do; if not, the inputs are projected before them.
    """
    steps, batch, features, state = (getattr(case, name) for name in SIZES)
    rows, gates = steps * batch, 3 * state
    projection = Part("projection of the inputs", "projection", (1, (rows, features, gates)))
    depth = state + features if steps_multiply_input else state
    return (
        *(() if steps_multiply_input else (projection,)),
        Part("forward steps", "forward_steps", (steps, (batch, depth, gates))),
        Part("gates in them", "forward_gates", within="forward_steps"),
        Part("backward steps", "backward_steps", (steps - 1, (batch, gates, state))),
        Part("gates in them", "backward_gates", within="backward_steps"),
        Part("gradient of the inputs", "input_gradient", (1, (rows, gates, features))),
        Part("gradient of the weights", "weight_gradient", (1, (gates, rows, state + features))),
        Part("gradient of the bias", "bias_gradient"),
    )


@functools.cache
def library(optimise: str = "-O2") -> ctypes.CDLL:
    """parts.cpp with the kernels, compiled as the wheel compiles them unless flags are given."""
    csrc = jit.source_directory()
    kernels = [csrc / name for name in jit.kernel_sources()]
    includes = [f"-I{path}" for path in (csrc, *cpp_extension.include_paths())]
    target = "-DTORCH_TARGET_VERSION=0x020a000000000000"
    flags = [optimise, "-std=c++17", "-Wno-psabi", target, *jit.kernel_flags(), *includes]
    read = [SOURCE, *(path for path in csrc.rglob("*") if path.is_file())]
    return compiled.load("parts", [SOURCE, *kernels], flags, read)


def arrays(case: Case) -> dict[str, Tensor]:
    """What the parts read and write; the weights small enough for the states to stay small."""
    steps, batch, features, state = (getattr(case, name) for name in SIZES)
    states = (steps, batch, state)
    shapes = {
        "input": (steps, batch, features),
        "weights": (3 * state, state + features),
        "bias": (3 * state,),
        **dict.fromkeys(("h0", "c0", "c_n"), (batch, state)),
        **dict.fromkeys(("grad_output", "output", "cells"), states),
        **dict.fromkeys(("gates", "d_z"), (steps, batch, 3 * state)),
        "d_input": (steps, batch, features),
        "d_weights": (3 * state, state + features),
        "d_bias": (3 * state,),
    }
    found = {name: torch.randn(*shapes[name]) for name in ARRAYS}
    found["weights"] /= state + features
    return found


def problem(case: Case, held: dict[str, Tensor]) -> Problem:
    """What parts.cpp wants; `held` must outlive it."""
    return Problem(
        *(getattr(case, name) for name in SIZES), *(held[name].data_ptr() for name in ARRAYS)
    )


def call(part: Part, of: Problem, built: ctypes.CDLL) -> Callable[[], object]:
    """A part of a :func:`library`, ready to be run."""
    return functools.partial(getattr(built, part.function), ctypes.byref(of))


def measure(case: Case, seconds: float) -> Iterator[Timed]:
    """Time the parts of a case, everything once a round, for about that many seconds."""
    held = arrays(case)
    of = problem(case, held)
    built = library()
    todo = parts_of(case, steps_multiply_input=built.steps_multiply_input(ctypes.byref(of)))
    calls = {part.function: call(part, of, built) for part in todo}
    blas = {
        part.function: floors.blas_of([part.product], torch.float32, "cpu")
        for part in todo
        if part.product
    }
    run_fma = floors.fma(torch.float32, 1)
    took: dict[tuple[str, str], list[float]] = {}
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < 3 or time.monotonic() < end:
        for part in todo:
            _clock(took, (part.function, "ours"), calls[part.function])
            if part.function in blas:
                _clock(took, (part.function, "blas"), blas[part.function])
        _clock(took, ("fma", "peak"), functools.partial(run_fma, floors.FMA_FLOPS))
        rounds += 1
    # The first round faults the memory in.
    middle = {key: 1e6 * statistics.median(times[1:]) for key, times in took.items()}
    us_per_flop = middle["fma", "peak"] / run_fma(floors.FMA_FLOPS)
    for part in todo:
        yield Timed(
            part.name,
            middle[part.function, "ours"],
            middle.get((part.function, "blas")),
            us_per_flop * floors.flops_of([part.product]) if part.product else None,
            part.within is None,
        )


def _clock(
    took: dict[tuple[str, str], list[float]], key: tuple[str, str], call: Callable[[], object]
) -> None:
    start = time.process_time()
    call()
    took.setdefault(key, []).append(time.process_time() - start)


def show(case: Case, timed: list[Timed]) -> None:
    """Print a table, as docs/performance/limits.md has it."""
    print(f"\n{case.name}\n\n| part | µs | share | same products by BLAS | at the peak rate |")
    print("|---|---:|---:|---:|---:|")
    counted = [each for each in timed if each.counted]
    total = sum(each.microseconds for each in counted)
    for each in timed:
        figures = (each.microseconds, each.microseconds / total, each.blas, each.peak)
        name = each.part if each.counted else f"*{each.part}*"
        print(f"| {name} | {_line(*figures)} |")
    sums = [sum(getattr(each, key) or 0 for each in counted) for key in ("blas", "peak")]
    print(f"| all | {_line(total, 1, *sums)} |")


def _line(microseconds: float, share: float, blas: float | None, peak: float | None) -> str:
    products = ("" if value is None else f"{value:,.0f}" for value in (blas, peak))
    return " | ".join([f"{microseconds:,.0f}", f"{share:.0%}", *products])


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    known = {case.name: case for case in BENCHMARK_CASES if case.op == "sequence"}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "case",
        nargs="*",
        choices=[*known, []],  # argparse of CPython 3.11 looks the empty list up
        metavar="TxBxFxS",
        help=f"of {', '.join(known)}; all where none is named",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="for each case (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}; medians of CPU time")
    found = {}
    for name in options.case or known:
        timed = list(measure(known[name], options.seconds))
        show(known[name], timed)
        found[name] = [asdict(each) for each in timed]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
