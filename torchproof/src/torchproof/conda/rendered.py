"""The recipe's variants, rendered for a platform without building anything."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rattler_build import (
    JinjaConfig,
    PlatformConfig,
    RattlerBuildError,
    RenderConfig,
    RenderedVariant,
    Stage0Recipe,
    VariantConfig,
)

from torchproof.conda import variants
from torchproof.conda.settings import RECIPE
from torchproof.config import ConfigError, project


@dataclass(frozen=True)
class Output:
    """A package that one variant makes; `pin_*` expressions stay as the recipe has them."""

    name: str
    version: str
    build: str
    number: int
    requirements: dict[str, Any]

    @property
    def key(self) -> str:
        """What tells packages apart: name and build string."""
        return f"{self.name} {self.build}"


def render(platform: str, extra: Iterable[Path] = ()) -> list[RenderedVariant]:
    """Every output of every variant, each once, the order of the recipe kept.

    The values of the variant files in `extra` replace those of the recipe's own.
    """
    chosen = PlatformConfig(
        target_platform=platform, build_platform=platform, host_platform=platform
    )
    try:
        config = VariantConfig.from_files_with_context(
            [variants.PATH, *extra], JinjaConfig(platform=chosen)
        )
        recipe = Stage0Recipe.from_file(RECIPE / "recipe.yaml")
        rendered = recipe.render(config, RenderConfig(platform=chosen))
    except RattlerBuildError as error:
        raise ConfigError(f"recipe/ cannot be rendered: {' '.join(str(error).split())}") from error
    # An output that does not use a key comes once for each of its values.
    unique = {output(variant).key: variant for variant in rendered}
    unnamed = {output(variant).name for variant in rendered} - {*project().conda.packages}
    if unnamed:
        raise ConfigError(
            f"recipe/recipe.yaml makes {', '.join(sorted(unnamed))}, which matrix.toml does not"
            " name: write the name into `conda` of [project], or rename the recipe's package"
        )
    return sorted(unique.values(), key=lambda variant: _order(output(variant)))


def output(variant: RenderedVariant) -> Output:
    """What a rendered variant is."""
    recipe = variant.recipe.to_dict()
    return Output(
        name=recipe["package"]["name"],
        version=recipe["package"]["version"],
        build=recipe["build"]["string"],
        number=recipe["build"].get("number", 0),
        requirements=recipe.get("requirements", {}),
    )


def outputs(platform: str) -> list[Output]:
    """What the committed recipe makes on a platform."""
    return [output(variant) for variant in render(platform)]


def _order(package: Output) -> tuple[int, int, str]:
    return project().conda.packages.index(package.name), package.number, package.build


def golden(platform: str) -> list[dict[str, Any]]:
    """The outputs of a platform as plain data, for the golden files and the report."""
    return [dataclasses.asdict(package) for package in outputs(platform)]
