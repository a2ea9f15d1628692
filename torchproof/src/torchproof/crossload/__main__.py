"""`python -m torchproof.crossload`: what `nox -s crossload` runs."""

from __future__ import annotations

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from torchproof import config, terminal
from torchproof.crossload import GridCell, Prober, Wheel
from torchproof.errors import TorchproofError
from torchproof.files import write_json
from torchproof.lock import held
from torchproof.machine.environments import Maker, installer
from torchproof.machine.inventory import this_machine
from torchproof.machine.processes import Processes, Stopped
from torchproof.matrix import BUILD
from torchproof.report import document
from torchproof.rows.build import Builder, BuildFailed, recipe
from torchproof.rows.plan import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from torchproof.machine.environments import Environment
    from torchproof.machine.inventory import CompilerFound, Machine

RESULT = BUILD / "crossload.json"
LOGS = BUILD / "logs" / "crossload"


@dataclass(frozen=True)
class CrossloadSession:
    """What a cross-load session works with."""

    matrix: config.Matrix
    machine: Machine
    compiler: CompilerFound
    maker: Maker
    builder: Builder
    processes: Processes

    def environment(self, torch: str) -> Environment:
        """The environment of a torch on the running Python."""
        return self.maker.make(torch, self.machine.running, "stubs", LOGS / "environments.log")

    def wheel(self, binding: str, torch: str) -> Wheel:
        """A wheel, built or taken from an earlier run, and unpacked."""
        row = Row(
            torch=torch,
            python=config.series(self.machine.running.version),
            binding=binding,
            compiler=self.compiler.label,
            cuda="cpu",
            packages="stubs",
            suite="",
            tier="",
            reason="",
            line=0,
        )
        wanted = recipe(self.matrix, row, self.compiler)
        on = self.environment(wanted.torch)
        artifact = self.builder.build(wanted, self.compiler, on, LOGS / f"{wanted.name}.log")
        site = BUILD / "work" / "crossload" / wanted.name
        shutil.rmtree(site, ignore_errors=True)
        command = self.maker.installer.install(
            on.program, "--no-deps", "--target", str(site), artifact.path
        )
        ended = self.processes.run(
            command, log=LOGS / "install.log", limit=120, cwd=BUILD, env=self.maker.installer.env
        )
        if not ended.ok:
            raise BuildFailed(f"{artifact.wheel} cannot be unpacked: {ended.explain(120)}")
        return Wheel(wanted.name, binding, wanted.torch, artifact.sha256, Path(artifact.path), site)


def run(
    session: CrossloadSession, torches: tuple[config.Torch, ...], console: Console
) -> dict[str, Any]:
    """The grid, written as it grows."""
    prober = Prober(session.processes, LOGS)
    grid: dict[str, Any] = {"torches": [torch.version for torch in torches], "wheels": []}
    wanted = [("stable", session.matrix.headers.version)]
    wanted += [("native", torch.version) for torch in torches]
    environments = {torch.version: session.environment(torch.version) for torch in torches}
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    with pool, console.status("cross-load") as status:
        for binding, built_on in wanted:
            status.update(f"{binding} wheel of torch {built_on}: build")
            wheel = session.wheel(binding, built_on)
            status.update(f"{wheel.name}: into {len(environments)} torches")

            def probe(torch: str, wheel: Wheel = wheel) -> GridCell:
                return prober.cell(wheel, environments[torch], torch)

            cells = list(pool.map(probe, environments))
            for cell in cells:
                console.print(line(wheel, cell), soft_wrap=True)
            grid["wheels"].append(
                {
                    "name": wheel.name,
                    "built_on": wheel.torch,
                    "sha256": wheel.sha256,
                    "cells": [asdict(s) | {"as_predicted": s.as_predicted} for s in cells],
                }
            )
            write_json(RESULT, grid)
    return grid


def line(wheel: Wheel, cell: GridCell) -> Text:
    """A cell in one line."""
    return Text(
        f"{wheel.name} in torch {cell.torch}: predicted {cell.predicted}, "
        f"package {cell.package.outcome}, loader {cell.loader.outcome}",
        style="green" if cell.as_predicted else "bold red",
    )


def table(grid: dict[str, Any]) -> Table:
    """The grid for the terminal; a cell that was not predicted is marked."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("wheel \\ torch", no_wrap=True)
    for torch in grid["torches"]:
        shown.add_column(torch)
    for wheel in grid["wheels"]:
        words = [
            cell["package"]["outcome"] + ("" if cell["as_predicted"] else " (not predicted)")
            for cell in wheel["cells"]
        ]
        shown.add_row(wheel["name"], *words)
    return shown


def chosen_torches(matrix: config.Matrix, names: Iterable[str], python: str) -> list[config.Torch]:
    """The torches named, or all; only those with a wheel for this Python can be tried.

    Raises:
        ConfigError: a name is no torch of the file.
    """
    try:
        wanted = [matrix.release(name) for name in names] or list(matrix.torch)
    except KeyError as error:
        raise config.ConfigError(f"there is no torch {error} in matrix.toml") from None
    return [release for release in wanted if python in release.every_python]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when every cell was predicted."""
    parser = argparse.ArgumentParser(prog="nox -s crossload --", description=__doc__)
    parser.add_argument("--torch", action="append", default=[], help="only these, 2.13; repeatable")
    options = parser.parse_args(argv)
    # In a log the grid keeps its words.
    console = terminal.console(width=None if sys.stdout.isatty() else 160)
    machine, processes = this_machine(), Processes()
    try:
        matrix = config.load()
        python = config.series(machine.running.version)
        torches = tuple(chosen_torches(matrix, options.torch, python))
        if machine.default is None:
            raise config.ConfigError("no g++ on this machine; the wheels are built with it")
        maker = Maker(BUILD / "environments", installer(machine.running), processes, machine.gpu)
        builder = Builder(BUILD / "artifacts", processes)
        session = CrossloadSession(matrix, machine, machine.default, maker, builder, processes)
        with held(BUILD):
            grid = run(session, torches, console)
    except (TorchproofError, OSError) as error:
        console.print(f"error: {error}", style="red")
        return 2
    except (KeyboardInterrupt, Stopped):
        processes.stop()
        console.print("interrupted: the wheels and environments made so far are kept")
        return INTERRUPTED
    console.print(table(grid))
    document.refresh(BUILD)
    surprises = [s for w in grid["wheels"] for s in w["cells"] if not s["as_predicted"]]
    console.print(
        f"{sum(len(w['cells']) for w in grid['wheels'])} cells, {len(surprises)} not as the "
        f"audit predicted; written to {shown(RESULT)}"
    )
    return 1 if surprises else 0


def shown(path: Path) -> str:
    """A path from the repository's root."""
    return str(path.relative_to(config.ROOT))


if __name__ == "__main__":
    sys.exit(main())
