"""A cell as a wheel, compiled here, or as the C++ that its kernels are compiled from.

``python -m lltm.cells build FILE.py:NAME --out DIR``,
``python -m lltm.cells functor FILE.py:NAME``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lltm._compile import CompileError
from lltm.cells._errors import StepError
from lltm.cells._functor import functor
from lltm.cells._package import Package, PackageError, cell_of


def main(arguments: list[str] | None = None) -> int:
    """Print the wheel's path or the functor; the exit status is 0 only if there is one."""
    parser = argparse.ArgumentParser(prog="python -m lltm.cells", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="build|functor")
    build = commands.add_parser("build", help="compile a cell ahead of time, into a wheel")
    shown = commands.add_parser("functor", help="print the C++ that a cell's kernels are made from")
    for command in (build, shown):
        command.add_argument("target", metavar="FILE.py:NAME", help="a file, and the name in it")
    build.add_argument("--out", type=Path, required=True, help="the folder the wheel goes to")
    build.add_argument("--version", default="0.1.0", help="the wheel's (default %(default)s)")
    build.add_argument(
        "--cuda",
        metavar="ARCHITECTURES",
        help="GPUs to compile CUDA kernels for, too: '9.0;12.0+PTX'; needs nvcc and no GPU",
    )
    options = parser.parse_args(arguments)
    try:
        if options.command == "functor":
            print(functor(cell_of(options.target)).text, end="")
        else:
            package = Package.find(options.target, options.version, options.cuda)
            print(package.build(options.out))
    except (PackageError, StepError, CompileError, OSError) as error:
        print(f"python -m lltm.cells {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
