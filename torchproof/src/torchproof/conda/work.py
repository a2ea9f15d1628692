"""The work of `torchproof conda`, which supervises it: `work.py FOLDER TOOL [native] [json]`."""

import json
import sys
from pathlib import Path

from rich.text import Text

from torchproof import terminal
from torchproof.conda.run import run
from torchproof.conda.session import session
from torchproof.conda.steps import Steps
from torchproof.conda.summary import tables
from torchproof.errors import TorchproofError


def main(folder: Path, tool: str, *, native: bool, as_json: bool) -> int:
    """Do it, and print what came of it; 0 when nothing failed."""
    console = terminal.console(stderr=as_json)
    steps = Steps(console)
    try:
        with steps.running():
            results = run(session(folder, tool, native, steps))
    except (TorchproofError, OSError) as error:
        terminal.print_error(console, error)
        return 2
    if as_json:
        print(json.dumps(results.to_json(), indent=1))
    for table in tables(results):
        console.print(table)
    for reason in results.not_run:
        console.print(Text.assemble(("not run ", "yellow"), reason))
    console.print(f"{results.seconds:.0f} s; report: build/conda/report.json")
    return 0 if results.ok else 1


if __name__ == "__main__":
    chosen = sys.argv[3:]
    sys.exit(
        main(Path(sys.argv[1]), sys.argv[2], native="native" in chosen, as_json="json" in chosen)
    )
