"""Runs the real runner over stand-in environments: `run.py FOLDER JOBS [MODE...]`.

A mode is resume, build, prebuilt, levels, emulated, headers (the stable wheel is compiled against
another torch), newer (on a CPython that has no wheel of that torch), alone (pytest has no workers),
or report, which writes the report, too.

A process of its own, so that a test can kill it as a user, or the kernel, would.
"""

from __future__ import annotations

from torchproof.interrupts import INTERRUPTED  # before the imports that are slow

# isort: split
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from torchproof.lock import BusyError
from torchproof.machine.environments import Environment, EnvironmentFailed
from torchproof.machine.inventory import CompilerFound, Emulation, Interpreter, Machine
from torchproof.machine.processes import Processes
from torchproof.machine.sample_processors import AMX
from torchproof.rows import row
from torchproof.rows.plan import expand, place
from torchproof.rows.progress import Progress
from torchproof.rows.scheduler import build, run
from torchproof.rows.single_flight import SingleFlight
from torchproof.rows.wheel_builder import Builder

from torchproof import config, terminal

EMULATOR = "qemu-user 1.0"
STANDIN = Path(__file__).with_name("python.py")
SOURCE = config.ROOT / "decay" / "__init__.py"
MATRIX = """
stable = { target = "2.10", headers = "2.13" }
torch = [ { version = "2.13.0", pythons = ["3.11"], cxx = 20, cuda = "13.0" } ]
compilers = [ { name = "g++", oldest = 11, newest = 15, cxx20 = 11 } ]
cuda = []
platforms = []
suites = [ { name = "full", paths = ["tests"], arguments = [], minutes = 1 } ]
tiers = [ { name = "local", includes = [], spans_torch = false } ]
rows = [
  ROW,
]
""".replace(
    "ROW",
    '{ tier = "local", torch = "2.13", python = "3.11", binding = ["stable", "native"], '
    'compiler = "each", suite = "full" }',
)
# With "newer" among the arguments: the one row.
NEWER_ROW = (
    '{ tier = "local", torch = "2.15", python = "3.15", binding = "stable", '
    'compiler = "default", suite = "full" }'
)
# With "levels" among the arguments: a row held to less than the processor has.
LEVELS = """
levels = [
  LEVEL,
]
""".replace(
    "LEVEL",
    '{ name = "avx2", needs = ["avx2"], above = ["avx512f"], hidden = ["512"], '
    'environment = ["ATEN_CPU_CAPABILITY=avx2"] }',
)
LEVEL_ROW = (
    '  { tier = "local", torch = "headers", python = "3.11", binding = "stable", '
    'compiler = "g++-11", suite = "full", level = "avx2" },\n]\n'
)


class Installer:
    """Installs the package as the project has it; an empty one where it has none."""

    @property
    def env(self) -> dict[str, str]:
        return {}

    def install(self, program: Path, *arguments: str) -> list[str]:
        package = Path(arguments[arguments.index("--target") + 1], "decay")
        made = f"cp '{SOURCE}' '{package}'" if SOURCE.exists() else f"touch '{package}/__init__.py'"
        return ["sh", "-c", f"mkdir -p '{package}' && {made}"]


@dataclass
class Maker:
    """Hands out the stand-in, where the torch has a wheel for it."""

    folder: Path
    installer: Installer
    matrix: config.Matrix

    def make(self, torch: str, python: Interpreter, packages: str, log: Path) -> Environment:
        if config.series(python.version) not in self.matrix.release(torch).every_python:
            raise EnvironmentFailed(f"torch {torch} has no wheel for CPython {python.version}")
        program = self.folder / "bin" / "python"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STANDIN}" "$@"\n')
        program.chmod(0o755)
        return Environment(self.folder, torch, python.version, "cpu")


def main() -> int:
    folder, jobs, resume = Path(sys.argv[1]), int(sys.argv[2]), "resume" in sys.argv
    row.audit = lambda *_: SimpleNamespace(ok=True, failed_rules=tuple)
    row.render = lambda *_: None
    row.to_json = lambda _: '[{"libraries": []}]'
    text = MATRIX.removesuffix("]\n") + LEVEL_ROW + LEVELS if "levels" in sys.argv else MATRIX
    if "headers" in sys.argv:
        text = text.replace('headers = "2.13"', 'headers = "2.14"')
    if "newer" in sys.argv:
        text = f"{text[: text.index('rows = [')]}rows = [\n  {NEWER_ROW},\n]\n"
    matrix = config.loads(text)
    emulation = Emulation("linux-x86_64", EMULATOR, Path("run")) if "emulated" in sys.argv else None
    python = Interpreter(Path("/usr/bin/python3.11"), "3.11.7", emulation=emulation)
    compilers = tuple(
        CompilerFound("g++", f"{major}.2.0", Path(f"/usr/bin/g++-{major}")) for major in (11, 12)
    )
    newer = Interpreter(Path("/usr/bin/python3.15"), "3.15.2")
    machine = Machine(python, (newer, python), compilers, compilers[0], gpu=False, processor=AMX)
    processes = Processes()
    with Progress(terminal.console()) as progress:
        tools = row.Tools(
            matrix=matrix,
            folder=folder,
            maker=Maker(folder / "environment", Installer(), matrix),
            builder=Builder(folder / "artifacts", processes),
            processes=processes,
            progress=progress,
            environments=SingleFlight(),
            artifacts=SingleFlight(),
            workers=0 if "alone" in sys.argv else 1,
            processor=AMX,
            prebuilt="prebuilt" in sys.argv,
        )
        placed = place(matrix, expand(matrix, "local"), machine)
        try:
            if "build" in sys.argv:
                results = build(placed, tools, jobs=jobs)
            else:
                results = run(placed, tools, jobs=jobs, resume=resume)
        except KeyboardInterrupt:
            return INTERRUPTED
        except (BusyError, OSError) as error:
            print(f"error: {error}")
            return 2
    if "report" in sys.argv:
        from torchproof.report import run_report  # noqa: PLC0415  # draws plots: slow to import

        run_report.write(folder, "local", results)
    return 1 if any(result.status == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
