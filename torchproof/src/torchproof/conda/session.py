"""What stays the same for the length of a run."""

from dataclasses import dataclass
from pathlib import Path

from torchproof import config
from torchproof.conda import channel, local, package_builder, rendered, settings, variants
from torchproof.conda import targets as conda_targets
from torchproof.conda.package_checks import PackageChecks, policies
from torchproof.conda.steps import Steps
from torchproof.conda.targets import Target
from torchproof.machine.inventory import this_machine


@dataclass(frozen=True)
class Session:
    """The machine, the matrix and the folders.

    Attributes:
        tool: what builds, as `package_builder.TOOLS` calls it.
        packages: the names of those that are built.
    """

    folder: Path
    tool: str
    packages: tuple[str, ...]
    matrix: config.Matrix
    facts: config.CondaVariants
    tools: local.Toolchain
    targets: tuple[Target, ...]
    steps: Steps

    @property
    def channel(self) -> channel.Channel:
        """The channel of this machine's parts."""
        scratch, log = self.scratch / "channel", self.logs / "channel.log"
        return channel.Channel(self.folder / "channel", scratch, log)

    @property
    def scratch(self) -> Path:
        """What is unpacked and built in; it goes at the end.

        Not before: a file system may not use a freed inode again for minutes, and looks for another
        one by one. With ten thousands freed, making a file took longer than writing it.
        """
        return self.folder / "scratch"

    @property
    def logs(self) -> Path:
        """Where logs are kept."""
        return self.folder / "logs"

    @property
    def cache(self) -> Path:
        """Where rattler keeps unpacked packages, to link them from."""
        return self.folder / "cache" / "pkgs"

    @property
    def context(self) -> package_builder.BuildContext:
        """Where the packages are built."""
        return package_builder.BuildContext(
            channels=(self.channel.folder,),
            output=self.folder / "packages",
            variants=self.folder / "local_variants.yaml",
            logs=self.logs,
            scratch=self.scratch,
        )

    @property
    def checks(self) -> PackageChecks:
        """What the packages are tested and audited with."""
        return PackageChecks(
            (self.channel.folder.resolve().as_uri(),),
            self.logs,
            policies(self.matrix, self.targets),
        )

    @property
    def cuda(self) -> str | None:
        """The CUDA release that the packages are built with, too."""
        return self.tools.nvcc.release if self.tools.nvcc else None

    @property
    def channels(self) -> tuple[Path, ...]:
        """What is installed from."""
        return (self.context.output, self.channel.folder)


def session(folder: Path, tool: str, native: bool, steps: Steps) -> Session:
    """Look at the machine.

    Raises:
        ConfigError: the project has no conda packages, no recipe of one, or no variant file.
        NoInterpreter: no CPython that can be packaged.
        NoCompiler: no g++.
        BuildFailed: the tool asked for is not there.
    """
    _check_project()
    packages = package_builder.packages(package_builder.tool(tool), native)
    _check_recipe(packages)
    matrix, facts = config.load(), settings.load()
    with steps.step("look for interpreters and compilers"):
        machine = this_machine()
        tools = local.toolchain(machine, cuda=bool(facts.cuda))
        targets = conda_targets.targets(matrix, machine)
    return Session(folder, tool, packages, matrix, facts, tools, targets, steps)


def _check_project() -> None:
    named = config.project().conda
    if missing := [key for key in ("stable", "tests") if not getattr(named, key)]:
        raise config.ConfigError(
            f"[project]: conda names no package for {' and '.join(missing)}: write conda = {{ "
            'stable = "NAME", tests = "NAME-tests" }, the names of recipe/recipe.yaml\'s outputs'
        )
    for path, remedy in (
        (settings.RECIPE / "recipe.yaml", "write it, or see what `torchproof init` makes"),
        (variants.PATH, "make it from matrix.toml with `torchproof conda --write`"),
    ):
        if not path.is_file():
            raise config.ConfigError(f"{path.relative_to(config.ROOT)} is not there; {remedy}")


def _check_recipe(packages: tuple[str, ...]) -> None:
    made = {output.name for output in rendered.outputs(package_builder.PLATFORM)}
    if missing := [name for name in packages if name not in made]:
        raise config.ConfigError(
            f"recipe/recipe.yaml makes no {' and no '.join(missing)}, which matrix.toml names: add "
            "an output of that name to the recipe, or correct the name in `conda` of [project]"
        )
