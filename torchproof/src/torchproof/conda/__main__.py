"""`torchproof conda`: the conda packages, built, tested and installed."""

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import json
import sys
from pathlib import Path

from rich.text import Text

from torchproof import config, terminal
from torchproof.conda import package_builder, rendered, settings, variants
from torchproof.conda.run import run
from torchproof.conda.session import session
from torchproof.conda.steps import Steps
from torchproof.conda.summary import tables
from torchproof.errors import TorchproofError
from torchproof.files import write_json
from torchproof.lock import held

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
        help=f"build, test and audit {config.project().conda.native}, too, as the programs of "
        "--tool always do",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument(
        "--write",
        action="store_true",
        help="only rebuild the variant file and the golden files from matrix.toml",
    )
    return parser.parse_args(argv)


def write() -> tuple[Path, ...]:
    """Write what is made from matrix.toml and the recipe; where."""
    variants.write()
    golden = config.ROOT / config.project().conda.proofs / "golden"
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
    steps = Steps(console)
    try:
        with held(FOLDER), steps.running():
            results = run(session(FOLDER, chosen.tool, chosen.native, steps))
    except TorchproofError as error:
        terminal.print_error(console, error)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted: the channel's finished parts are kept", style="yellow")
        return INTERRUPTED
    if chosen.json:
        print(json.dumps(results.to_json(), indent=1))
    for table in tables(results):
        console.print(table)
    for reason in results.not_run:
        console.print(Text.assemble(("not run ", "yellow"), reason))
    console.print(f"{results.seconds:.0f} s; report: build/conda/report.json")
    return 0 if results.ok else 1


if __name__ == "__main__":
    sys.exit(main())
