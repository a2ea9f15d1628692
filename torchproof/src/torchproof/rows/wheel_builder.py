"""Wheels: each artifact is built once, from a copy of the sources, and kept under their hash."""

import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from torchproof.config import HOME, ROOT, Matrix, project, series
from torchproof.errors import TorchproofError
from torchproof.files import read_sealed, sha256, source_hash, text_hash, write_sealed
from torchproof.machine.environments import OWN_MODULES, Environment
from torchproof.machine.inventory import CompilerFound
from torchproof.machine.processes import Processes, reason_in
from torchproof.rows import history
from torchproof.rows.plan import Row

RECORD = "artifact.json"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
# A native build is for the torch at hand, whatever pyproject.toml asks of an isolated build.
BUILD_WHEEL = ("-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", "-o")
# A build finds these in its copy of the project, whether or not `sources` name them.
BUILD_FILES = (
    *("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "CMakeLists.txt"),
    *("meson.build", "meson.options", "meson_options.txt"),
)
FLAGS = ("CPPFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS")


class BuildFailed(TorchproofError):
    """The wheel could not be built; the message says why, in one sentence."""


@dataclass(frozen=True)
class Recipe:
    """What makes two rows share a wheel: they agree in all of this."""

    binding: str
    compiler: str
    compiler_version: str
    cuda: str
    torch: str
    sources: str
    platform: str = HOME
    architectures: str = ""
    python: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """A name for folders and logs."""
        cuda = self.cuda if self.cuda == "cpu" else f"cuda{self.cuda}"
        torch = "" if self.binding == "stable" else f"-torch{series(self.torch)}"
        platform = "" if self.platform == HOME else f"-{self.platform}"
        python = f"-py{self.python}" if self.python else ""
        return f"{self.binding}{torch}-{self.compiler}-{cuda}{platform}{python}"


@dataclass(frozen=True)
class Artifact:
    """A wheel on disk, the torch whose headers it was built on, and how long that took."""

    name: str
    torch: str
    wheel: str
    sha256: str
    bytes: int
    seconds: float
    path: str


def recipe(matrix: Matrix, row: Row, compiler: CompilerFound) -> Recipe:
    """The recipe of the wheel a row needs: native ones are bound to the row's torch."""
    return Recipe(
        binding=row.binding,
        compiler=compiler.label,
        compiler_version=compiler.version,
        cuda=row.cuda,
        torch=matrix.built_on(row.binding, row.torch).version,
        sources=source_hash(*dict.fromkeys((*project().sources, *BUILD_FILES))),
        platform=row.platform,
        architectures=";".join(matrix.architectures(row.cuda)),
        python="" if project().any_python else row.python,
        variables=tuple(sorted({**_flags(), **project().build.of(row.binding, row.cuda)}.items())),
    )


def _flags() -> dict[str, str]:
    """What a build takes from the shell beside what the project states."""
    return {name: value for name in FLAGS if (value := os.environ.get(name))}


def _environment(
    recipe: Recipe, compiler: CompilerFound, environment: Environment
) -> dict[str, str]:
    """What a build is started with."""
    return {
        **OWN_MODULES,
        # As torch's own builds take it; nothing of what this shell may have.
        "TORCH_CUDA_ARCH_LIST": recipe.architectures,
        **dict(recipe.variables),
        **history.version(environment),
        "CXX": str(compiler.path),
        "CC": str(compiler.c_compiler),
        "MAX_JOBS": str(os.cpu_count() or 1),
        "PATH": f"{environment.program.parent}{os.pathsep}{os.environ['PATH']}",
    }


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a build must not see: results, caches, history, and what no wheel is made of."""
    here = Path(folder)
    out = set(LEFT_OUT(folder, names))
    # Links that lead nowhere, pipes and sockets.
    out |= {name for name in names if not ((here / name).is_file() or (here / name).is_dir())}
    out |= {name for name in names if (here / name).relative_to(ROOT).as_posix() in _generated()}
    if here == ROOT:
        sources = {Path(name).parts[0] for name in project().sources}
        out |= {name for name in names if (here / name).is_dir() and name not in sources}
    return out


def _generated() -> set[str]:
    return {Path(name).as_posix() for name in project().generated}


@dataclass(frozen=True)
class Builder:
    """Builds wheels under `folder`."""

    folder: Path
    processes: Processes

    def home(self, recipe: Recipe) -> Path:
        """Where the wheel of a recipe lies."""
        return self.folder / f"{recipe.name}-{text_hash(*map(str, asdict(recipe).values()))[:12]}"

    def known(self, recipe: Recipe) -> Artifact | None:
        """The wheel of a recipe, if it is there and whole; the folder may have been moved here."""
        home = self.home(recipe)
        record = read_sealed(home / RECORD)
        if record is None:
            return None
        artifact = Artifact(**{**record, "path": str(home / record["wheel"])})
        whole = Path(artifact.path).is_file() and sha256(Path(artifact.path)) == artifact.sha256
        return artifact if whole else None

    def build(
        self, recipe: Recipe, compiler: CompilerFound, environment: Environment, log: Path
    ) -> Artifact:
        """The wheel of a recipe: the one already there, or a new one."""
        if (known := self.known(recipe)) is not None:
            return known
        home = self.home(recipe)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        variables = _environment(recipe, compiler, environment)
        with tempfile.TemporaryDirectory(prefix="source-", dir=home) as folder:
            source = Path(folder) / project().name
            shutil.copytree(ROOT, source, ignore=left_out)
            command: list[str | Path] = [environment.program, *BUILD_WHEEL, home, source]
            # How long a compiler takes is the project's and the machine's matter.
            ended = self.processes.run(command, log=log, limit=None, cwd=source, env=variables)
        if not ended.ok:
            raise BuildFailed(f"{ended.explain()}{reason_in(log)}")
        wheels = sorted(home.glob("*.whl"))
        if len(wheels) != 1:
            found = ", ".join(path.name for path in wheels) or "none"
            raise BuildFailed(f"expected one wheel of {project().name} in {home}, found {found}")
        artifact = Artifact(
            name=recipe.name,
            torch=recipe.torch,
            wheel=wheels[0].name,
            sha256=sha256(wheels[0]),
            bytes=wheels[0].stat().st_size,
            seconds=round(ended.seconds, 2),
            path=str(wheels[0]),
        )
        write_sealed(home / RECORD, asdict(artifact))
        return artifact
