"""`torchproof conda`: the conda packages, built, tested and installed.

The work is done by a process of its own under a supervisor, as rattler-build lets no other thread
of its process run: nothing in there could end its workers and their compilers with this program.
"""

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import sys
from pathlib import Path

from torchproof import config, terminal
from torchproof.conda import package_builder, rendered, settings, variants
from torchproof.errors import TorchproofError
from torchproof.files import write_json
from torchproof.lock import held
from torchproof.machine.processes import run_here

FOLDER = config.ROOT / "build" / "conda"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="torchproof conda",
        description="Build, test, audit and install the conda packages, with or without conda.",
    )
    parser.add_argument(
        "--tool",
        choices=sorted(package_builder.TOOLS),
        default=package_builder.PY_RATTLER_BUILD,
        help="what builds the recipe (default: %(default)s)",
    )
    parser.add_argument(
        "--native",
        action="store_true",
        help="build, test and audit the native binding's package, too, as the programs of --tool "
        "always do",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument(
        "--write",
        action="store_true",
        help="only rebuild the variant file, and the golden files of the proofs, from matrix.toml",
    )
    return parser.parse_args(argv)


def write() -> tuple[Path, ...]:
    """Write what is made from matrix.toml and the recipe; where."""
    variants.write()
    proofs = config.project().conda.proofs
    if not proofs:
        return (variants.PATH,)
    golden = config.ROOT / proofs / "golden"
    for platform in settings.load().platforms:
        write_json(golden / f"conda-{platform}.json", rendered.golden(platform))
    return (variants.PATH, golden)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when nothing failed."""
    chosen = arguments(argv)
    console = terminal.console(stderr=chosen.json)
    if chosen.write:
        written = (str(path.relative_to(config.ROOT)) for path in write())
        console.print(f"written: {', '.join(written)}")
        return 0
    work = [sys.executable, "-m", "torchproof.conda.work", str(FOLDER), chosen.tool]
    work += [name for name in ("native", "json") if getattr(chosen, name)]
    try:
        with held(FOLDER):
            return run_here(work)
    except TorchproofError as error:
        terminal.print_error(console, error)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted: the channel's finished parts are kept", style="yellow")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
