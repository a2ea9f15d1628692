"""The wheels of the project, built on one torch after another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchproof.config import ROOT, ConfigError, Matrix, project, read_text, series
from torchproof.grid.wheel_file import Wheel, read_wheel
from torchproof.machine.environments import Environment
from torchproof.machine.inventory import CompilerFound
from torchproof.rows.plan import Row
from torchproof.rows.wheel_builder import Builder, recipe

# What a smoke file's functions are called by.
CALL = "import runpy; runpy.run_path({path!r})[{function!r}]()"


@dataclass(frozen=True)
class BuiltWheels:
    """Builds wheels, or takes those of earlier runs."""

    matrix: Matrix
    builder: Builder
    compiler: CompilerFound
    environment: Callable[[str], Environment]
    logs: Path

    def each(self, build_on: Sequence[str], torches: Sequence[str]) -> Iterator[Wheel]:
        """A wheel a binding and torch.

        Args:
            build_on: the torches; where there are none, the stable wheel is built on its headers,
                and a native one on every torch.
            torches: those that the wheels are tried in.
        """
        for binding in bindings(self.matrix):
            stable = [self.matrix.headers.version] if binding == "stable" else None
            for torch in build_on or stable or torches:
                yield self._wheel(binding, torch)

    def _wheel(self, binding: str, torch: str) -> Wheel:
        environment = self.environment(torch)
        row = Row(
            torch=torch,
            python=series(environment.python),
            binding=binding,
            compiler=self.compiler.label,
            cuda="cpu",
            packages="stubs",
            suite="",
            tier="",
            reason="",
            line=0,
        )
        wanted = replace(recipe(self.matrix, row, self.compiler), torch=torch)
        name = f"{binding}-torch{series(torch)}-{self.compiler.label}"
        log = self.logs / f"{name}.log"
        artifact = self.builder.build(wanted, self.compiler, environment, log)
        return replace(
            read_wheel(Path(artifact.path)),
            name=name,
            package=f"import {project().name}",
            smoke=_calling("by_import"),
            by_loader=_calling("by_loader"),
            built_on=torch,
            guarded=project().guarded,
        )


def bindings(matrix: Matrix) -> tuple[str, ...]:
    """Those that rows name."""
    found = tuple(dict.fromkeys(name for row in matrix.rows for name in row.binding))
    if not found:
        raise ConfigError("matrix.toml has no row: the binding of one says what to build")
    return found


def _calling(function: str) -> str:
    path = ROOT / project().smoke
    if not path.is_file():
        raise ConfigError(f"[project]: smoke names {project().smoke}, which is not there")
    defined = f"def {function}(" in read_text(path)
    return CALL.format(path=str(path), function=function) if defined else ""
