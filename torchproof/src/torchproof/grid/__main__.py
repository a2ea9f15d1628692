"""`torchproof grid WHEEL...`: load wheels into torches, beside the audit's prediction."""

from __future__ import annotations

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof import config, terminal
from torchproof.audit.torches import NotTorchError
from torchproof.errors import TorchproofError
from torchproof.files import write_atomically, write_json
from torchproof.grid import GridCell, Prober, markdown, read_wheel
from torchproof.machine.environments import EnvironmentFailed, Maker, installer
from torchproof.machine.inventory import this_machine
from torchproof.machine.processes import Processes, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchproof.grid import Wheel

BUILD = config.ROOT / "build" / "matrix"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="torchproof grid", description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help="*.whl")
    parser.add_argument("--torch", metavar="LIST", help="2.10,2.13; all known ones unless given")
    parser.add_argument(
        "--smoke",
        metavar="PROGRAM",
        help="what uses a wheel; unless given, it is imported",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args(argv)


def releases(names: str | None, python: str) -> list[str]:
    """The torches to try, those with a wheel for this Python.

    Raises:
        ConfigError: a name is no torch that is known, or none is left.
    """
    matrix = config.load() if config.PATH.is_file() else config.known()
    wanted = names.split(",") if names else [release.version for release in matrix.torch]
    found = []
    for name in wanted:
        named = [r for r in matrix.torch if name in (r.version, r.series)]
        if not named:
            known = ", ".join(release.series for release in matrix.torch)
            raise config.ConfigError(f"--torch: {name!r} is none of {known}")
        found += [release.version for release in named if python in release.every_python]
    if not found:
        raise config.ConfigError(f"--torch: none of {', '.join(wanted)} has a wheel for {python}")
    return found


def cells(
    wheels: list[Wheel], torches: list[str], maker: Maker, prober: Prober
) -> Iterator[GridCell]:
    """Every wheel in every torch."""
    running = this_machine().running
    for torch, wheel in itertools.product(torches, wheels):
        log = prober.folder / "logs" / f"environment-torch{torch}.log"
        yield prober.cell(wheel, maker.make(torch, running, "stubs", log), torch)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when every prediction was right, 2 on bad input."""
    options = arguments(argv)
    console = terminal.console(stderr=options.json, soft_wrap=True)
    machine, processes = this_machine(), Processes()
    folder = config.ROOT / "build" / "grid"
    made = installer(machine.running)
    maker = Maker(BUILD / "environments", made, processes, machine.gpu)
    found: list[GridCell] = []
    try:
        wheels = [read_wheel(path.absolute(), options.smoke) for path in options.wheels]
        torches = releases(options.torch, config.series(machine.running.version))
        folder.mkdir(parents=True, exist_ok=True)
        for cell in cells(wheels, torches, maker, Prober(processes, made, folder)):
            found.append(cell)
            style = "green" if cell.as_predicted else "bold red"
            console.print(f"{cell.wheel} in torch {cell.torch}", style=style)
            console.print(f"  predicted: {cell.predicted}, {cell.reason}")
            console.print(f"  found: {cell.found.outcome} {cell.found.reason}")
    except (TorchproofError, EnvironmentFailed, NotTorchError, OSError) as error:
        console.print(f"error: {error}", style="red")
        return 2
    except (KeyboardInterrupt, Stopped):
        processes.stop()
        return INTERRUPTED
    document = [asdict(cell) | {"as_predicted": cell.as_predicted} for cell in found]
    write_json(folder / "grid.json", document)
    table = markdown(found)
    if options.markdown:
        write_atomically(options.markdown, table)
    print(json.dumps(document, indent=1) if options.json else table)
    return 0 if all(cell.as_predicted for cell in found) else 1


if __name__ == "__main__":
    sys.exit(main())
