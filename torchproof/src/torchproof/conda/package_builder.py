"""Build the recipe's packages, with whichever of the three tools is asked for."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler.index import index_fs
from rattler_build import Package, RattlerBuildError, RenderedVariant, ToolConfiguration

from torchproof import config
from torchproof.conda import rendered, variants
from torchproof.conda.local import Toolchain
from torchproof.conda.log import Log
from torchproof.conda.settings import RECIPE
from torchproof.conda.targets import Target
from torchproof.errors import TorchproofError
from torchproof.files import write_atomically

PLATFORM = "linux-64"
PY_RATTLER_BUILD = "py-rattler-build"
# What tells the variants of one machine apart.
CUDA = "cuda_compiler_version"
# What compiles in minutes: code for the newest GPU, and PTX for what comes after it.
LOCAL_ARCHITECTURES = "12.0+PTX"


class BuildFailed(TorchproofError):
    """A package cannot be built; the message names it and its log."""


@dataclass(frozen=True)
class Built:
    """A package file."""

    path: Path
    seconds: float

    @property
    def package(self) -> Package:
        """What the file says of itself."""
        return Package.from_file(self.path)


@dataclass(frozen=True)
class BuildContext:
    """Where packages are built, and from what."""

    channels: tuple[Path, ...]
    output: Path
    variants: Path
    logs: Path
    scratch: Path

    @property
    def uris(self) -> list[str]:
        """The channels as the tools take them, the packages built so far first."""
        return [folder.resolve().as_uri() for folder in (self.output, *self.channels)]


def _find(context: BuildContext, wanted: rendered.Output, files: Sequence[Path]) -> RenderedVariant:
    return next(
        variant
        for variant in rendered.render(PLATFORM, files)
        if rendered.output(variant).key == wanted.key
    )


def alone(context: BuildContext, wanted: rendered.Output) -> Path:
    """A variant file for one package's variant and no other.

    Of several, rattler-build takes any for the one that `pin_subpackage` means: the tests of the
    CUDA package were pinned to the CPU package.
    """
    used = _find(context, wanted, [context.variants]).variant
    chosen = {CUDA: (str(used.get(CUDA, variants.NO_CUDA)),)}
    path = context.variants.parent / "variants" / f"{wanted.name}-{wanted.build}.yaml"
    write_atomically(path, variants.to_yaml(chosen))
    return path


@dataclass(frozen=True)
class PyRattlerBuild:
    """rattler-build as a Python package; what a machine without conda has."""

    # It may build several packages at the same time.
    many_at_once: bool = True

    def build(self, context: BuildContext, wanted: rendered.Output) -> Built:
        """Build one package, without its tests."""
        started = time.monotonic()
        log = context.logs / f"{wanted.name}-{wanted.build}-build.log"
        variant = _find(context, wanted, [context.variants, alone(context, wanted)])
        # In a folder of its own: a build writes the index beside its package, and two may run.
        folder = context.scratch / f"{wanted.name}-{wanted.build}"
        try:
            result = variant.run_build(
                # What is left is taken away with everything else, see Session.scratch.
                ToolConfiguration(test_strategy="skip", keep_build=True),
                output_dir=folder,
                channels=context.uris[1:],
                package_format="conda",
                progress_callback=Log(log),
            )
        except RattlerBuildError as error:
            raise BuildFailed(f"{wanted.key}: {error}; the log is {log}") from error
        target = context.output / PLATFORM / Path(result.packages[0]).name
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(result.packages[0]).replace(target)
        return Built(target, time.monotonic() - started)


@dataclass(frozen=True)
class CommandLine:
    """A program on PATH: conda-build or rattler-build."""

    program: tuple[str, ...]
    output_option: str
    variants_option: str
    more: tuple[str, ...]
    # It builds every output of a variant at once.
    many_at_once: bool = False

    def build(self, context: BuildContext, wanted: rendered.Output) -> Built:
        """Build one package, without its tests; the first call of a variant builds all of it."""
        started = time.monotonic()
        log = context.logs / f"{self.program[0]}.log"
        found = self._find(context, wanted)
        if found is None:
            self._run(context, wanted, log)
            found = self._find(context, wanted)
        if found is None:
            raise BuildFailed(f"{self.program[0]} made no {wanted.key}; the log is {log}")
        return Built(found, time.monotonic() - started)

    def _find(self, context: BuildContext, wanted: rendered.Output) -> Path | None:
        name = f"{wanted.name}-{wanted.version}-{wanted.build}.conda"
        return next(iter(context.output.glob(f"{PLATFORM}/{name}")), None)

    def _run(self, context: BuildContext, wanted: rendered.Output, log: Path) -> None:
        command = [*self.program, str(RECIPE), self.output_option, str(context.output)]
        for path in (variants.PATH, context.variants, alone(context, wanted)):
            command += [self.variants_option, str(path)]
        command += self.more
        for uri in context.uris[1:]:
            command += ["-c", uri]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            ended = subprocess.run(command, stdout=file, stderr=file, check=False)
        if ended.returncode:
            raise BuildFailed(
                f"{' '.join(self.program)} ended with {ended.returncode}; the log is {log}"
            )


Tool = PyRattlerBuild | CommandLine
TOOLS: Mapping[str, Tool] = {
    PY_RATTLER_BUILD: PyRattlerBuild(),
    "rattler-build": CommandLine(
        program=("rattler-build", "build", "--recipe"),
        output_option="--output-dir",
        variants_option="--variant-config",
        more=("--test", "skip", "--package-format", "conda"),
    ),
    "conda-build": CommandLine(
        program=("conda-build",),
        output_option="--output-folder",
        variants_option="--variant-config-files",
        more=("--no-test", "--no-anaconda-upload", "--package-format", "2", "--override-channels"),
    ),
}


def tool(name: str) -> Tool:
    """The tool called `name`."""
    if name != PY_RATTLER_BUILD and shutil.which(name) is None:
        raise BuildFailed(
            f"--tool {name}: there is no {name} on PATH; install it with conda "
            f"(`conda install {name}`), or leave --tool out to build with {PY_RATTLER_BUILD}"
        )
    return TOOLS[name]


def packages(chosen: Tool, native: bool) -> tuple[str, ...]:
    """The packages to build: the native binding's only where it is asked for, or comes anyway.

    Compiled for one torch, beside the one library that serves all, it takes a tenth of the session.

    Raises:
        ConfigError: the project names none.
    """
    every = native or not chosen.many_at_once
    names = config.project().conda
    if native and not names.native:
        raise config.ConfigError("--native: `conda` of [project] names no package `native`")
    return tuple(name for name in names.packages if every or name != names.native)


def local_variants(
    tools: Toolchain, targets: Sequence[Target], path: Path
) -> list[rendered.Output]:
    """Keep of the committed variants what can be built here, and return what that makes.

    The C library is this machine's own, not the old one conda-forge links against.
    """
    cuda = [variants.NO_CUDA]
    if tools.nvcc is not None:
        cuda.append(tools.nvcc.release)
    values = {
        "cuda_architectures": (LOCAL_ARCHITECTURES,),
        "c_stdlib_version": (tools.glibc,),
        "cuda_compiler_version": tuple(cuda),
        "pytorch": (config.series(targets[0].torch),),
    }
    write_atomically(path, variants.to_yaml(values))
    return [rendered.output(variant) for variant in rendered.render(PLATFORM, [path])]


def index(output: Path) -> None:
    """Write the index of the packages built."""
    for subdir in (PLATFORM, "noarch"):
        (output / subdir).mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(output, write_zst=False, write_shards=False))
