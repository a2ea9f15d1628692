"""`torchproof grid WHEEL...`: load wheels into torches, beside the prediction.

WHEEL is a wheel, or a TOML list of released ones; `--built` is for the wheels of the project, which
it builds (`torchproof crossload`).
"""

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from torchproof import config, terminal
from torchproof.errors import TorchproofError
from torchproof.files import write_sealed
from torchproof.grid import released, released_page
from torchproof.grid.built import BuiltWheels
from torchproof.grid.crossload import Grid, Line, Refused, lines
from torchproof.grid.prober import Prober
from torchproof.grid.released import Absent
from torchproof.grid.table import details, table
from torchproof.grid.wheel_file import GridError, Wheel, read_wheel
from torchproof.lock import held
from torchproof.machine.environments import Environment, Maker, installer
from torchproof.machine.inventory import Interpreter, Machine, this_machine
from torchproof.machine.processes import Processes, Stopped
from torchproof.report import run_report
from torchproof.rows.wheel_builder import Builder

BAD_INPUT = 2
BUILD = config.ROOT / "build" / "matrix"
FOLDER = config.ROOT / "build" / "grid"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="torchproof grid",
        description=__doc__,
        epilog="Exit codes: 0 every cell was tried and came as predicted; 1 one was not tried, or"
        " came otherwise; 2 bad input, a wheel that cannot be read among it.",
    )
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL", help="*.whl, or a *.toml")
    parser.add_argument("--built", action="store_true", help="the project's wheels, built here")
    parser.add_argument("--torch", metavar="LIST", help="2.10,2.13; all known ones unless given")
    parser.add_argument("--build-on", metavar="LIST", help="the torches that --built builds on")
    parser.add_argument("--python", metavar="VERSION", help="3.12; the running one unless given")
    parser.add_argument("--smoke", metavar="PROGRAM", default="", help="run after the import")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="write a page with its data")
    options = parser.parse_args(argv)
    if options.write and options.write.suffix != ".md":
        parser.error(f"--write takes a name that ends in .md, got {options.write}")
    return options


@dataclass
class Named:
    """The wheels named, those that cannot be read, and of a list its torches and what it lacks."""

    wheels: list[Wheel] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    torches: list[str] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)

    def add(self, name: str, read: Callable[[], Wheel]) -> None:
        """Add a wheel; one that cannot be read does not hide the others."""
        try:
            self.wheels.append(read())
        except GridError as error:
            self.refused.append(Refused(name, str(error)))


@dataclass(frozen=True)
class GridSession:
    """What a grid works with."""

    options: argparse.Namespace
    matrix: config.Known
    machine: Machine
    processes: Processes
    console: Console

    @property
    def python(self) -> Interpreter:
        """The CPython of every cell."""
        wanted = self.options.python or config.series(self.machine.running.version)
        found = self.machine.python(wanted)
        if found is None:
            raise config.ConfigError(f"--python: no CPython {wanted} on this machine")
        return found

    def environment(self, torch: str) -> Environment:
        """The environment of a torch."""
        maker = Maker(
            BUILD / "environments",
            installer(self.machine.running),
            self.processes,
            self.machine.gpu,
        )
        log = FOLDER / "logs" / "environments.log"
        return maker.make(torch, self.python, "stubs", log)

    def releases(self, names: list[str]) -> list[str]:
        """The torches to try, those with a wheel for this Python."""
        python = config.series(self.python.version)
        found, others = [], []
        for name in names or [release.version for release in self.matrix.torch]:
            named = [r for r in self.matrix.torch if name in (r.version, r.series)]
            if not named:
                known = ", ".join(release.series for release in self.matrix.torch)
                raise config.ConfigError(f"--torch: {name!r} is none of {known}")
            found += [release.version for release in named if python in release.every_python]
            others += [release for release in named if python not in release.every_python]
        if not found:
            fit = dict.fromkeys(each for release in others for each in release.every_python)
            raise config.ConfigError(
                f"--torch: none of {', '.join(names) or 'the known ones'} has a wheel for CPython "
                f"{python}: name one of {', '.join(fit)} with --python"
            )
        for release in others if names else ():
            self.console.print(
                f"torch {release.version} has no wheel for CPython {python}: left out"
            )
        return found

    def named_wheels(self) -> Named:
        """What the command line names."""
        named = Named()
        for path in self.options.wheels:
            if path.suffix != ".toml":
                named.add(path.name, partial(self._wheel, path))
                continue
            found = released.read(path)
            for each in found.wheels:
                named.add(each.wheel, partial(self._released, each))
            named.torches += found.torch
            named.absent += found.absent
        return named

    def _wheel(self, path: Path) -> Wheel:
        return replace(read_wheel(path.absolute()), smoke=self.options.smoke)

    def _released(self, each: released.Released) -> Wheel:
        return released.download(each, FOLDER / "wheels", self.processes)

    def built_wheels(self, torches: Sequence[str]) -> Iterator[Wheel]:
        """The project's own."""
        if self.machine.default is None:
            raise config.ConfigError("no g++ on this machine; the wheels are built with it")
        builder = Builder(BUILD / "artifacts", self.processes)
        matrix = config.load()
        built = BuiltWheels(
            matrix, builder, self.machine.default, self.environment, FOLDER / "logs"
        )
        build_on = _listed(self.options.build_on)
        return built.each(self.releases(build_on) if build_on else [], torches)

    def run(self) -> tuple[Grid, list[Absent]]:
        """The whole grid."""
        options = self.options
        if options.built == bool(options.wheels):
            raise GridError("name wheels, or --built for those of the project; not both")
        named = self.named_wheels()
        for each in named.refused:
            self._print_refused(each)
        if named.refused and not named.wheels:
            return Grid({}, (), tuple(named.refused)), named.absent
        names = self.releases(_listed(options.torch) or named.torches)
        environments = {torch: self.environment(torch) for torch in names}
        prober = Prober(self.processes, installer(self.machine.running), FOLDER)
        found: list[Line] = []
        refused = named.refused
        wheels = self.built_wheels([*environments]) if options.built else iter(named.wheels)
        for line in lines(wheels, environments, prober):
            if isinstance(line, Refused):
                refused.append(line)
                self._print_refused(line)
                continue
            found.append(line)
            self.console.print(details(line), soft_wrap=True)
        return Grid(environments, tuple(found), tuple(refused)), named.absent

    def _print_refused(self, refused: Refused) -> None:
        terminal.print_error(self.console, refused.error)


def _listed(names: str | None) -> list[str]:
    return names.split(",") if names else []


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when all was run, and as predicted; 2 where any input was bad."""
    options = arguments(argv)
    console = terminal.console(stderr=options.json, wide=True)
    processes = Processes()
    try:
        matrix = config.load() if options.built or config.PATH.is_file() else config.known()
        session = GridSession(options, matrix, this_machine(), processes, console)
        with held(BUILD):
            grid, absent = session.run()
    except (TorchproofError, OSError) as error:
        terminal.print_error(console, error)
        return BAD_INPUT
    except (KeyboardInterrupt, Stopped):
        processes.stop()
        console.print("interrupted: the wheels and environments made so far are kept")
        return INTERRUPTED
    if grid.environments:
        _show(grid, absent, options, console)
    if grid.refused:
        return BAD_INPUT
    return 0 if grid.proven else 1


def _show(grid: Grid, absent: list[Absent], options: argparse.Namespace, console: Console) -> None:
    result = (BUILD if options.built else FOLDER) / "grid.json"
    write_sealed(result, grid.to_dict())
    if options.built:
        run_report.refresh(BUILD)
    if options.write:
        released_page.write(options.write, grid, absent, _heading(options))
    console.print(table(grid))
    surprises = sum(not cell.as_predicted for cell in grid.cells)
    not_run = sum(not cell.run for cell in grid.cells)
    console.print(
        f"{len(grid.cells)} cells, {surprises} not as predicted, {not_run} not run, "
        f"{len(grid.refused)} wheels that cannot be tried; written to "
        f"{result.relative_to(config.ROOT)}"
    )
    if options.json:
        print(json.dumps(grid.to_dict(), indent=1))


def _heading(options: argparse.Namespace) -> released_page.Heading:
    wheels, title = "Wheels", "What loads where"
    command = ["torchproof", "grid", *map(str, options.wheels), "--write", str(options.write)]
    if options.built:
        title = f"{config.project().name}: what loads where"
        wheels = "Wheels of its sources, built on one torch after another"
        command = ["torchproof", "crossload"]
        command += ["--torch", options.torch] if options.torch else []
        command += ["--build-on", options.build_on] if options.build_on else []
    return released_page.Heading(title, wheels, shlex.join(command))


if __name__ == "__main__":
    sys.exit(main())
