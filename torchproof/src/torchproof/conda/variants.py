"""`recipe/conda_build_config.yaml`, made from matrix.toml, and a check of its drift."""

import difflib
from collections.abc import Mapping

from torchproof import config
from torchproof.conda import settings
from torchproof.config import CondaVariants, Matrix
from torchproof.files import write_atomically

PATH = settings.RECIPE / "conda_build_config.yaml"
HEADER = """\
# Made from matrix.toml by `torchproof run --write`; `torchproof check` fails when it has drifted.
# Block lists and no selectors: conda-build takes a trailing [...] for a selector, and rattler-build
# takes a selector for a comment.
"""
# conda-forge's word for the variant without CUDA.
NO_CUDA = "None"


def variants(matrix: Matrix, facts: CondaVariants) -> dict[str, tuple[str, ...]]:
    """Every variant key of the recipe with its values."""
    return {
        "c_stdlib": ("sysroot",),
        "c_stdlib_version": (facts.glibc,),
        "cuda_architectures": ("all",),
        "cuda_compiler": ("cuda-nvcc",),
        "cuda_compiler_version": (NO_CUDA, *facts.cuda),
        "python_min": (matrix.pythons[0],),
        "pytorch": tuple(release.series for release in matrix.supporting("stable")),
        "pytorch_below": (facts.torch_below,),
        "pytorch_min": (matrix.stable.target,),
    }


def to_yaml(values: Mapping[str, tuple[str, ...]]) -> str:
    """A variant file that conda-build, rattler-build and py-rattler-build read alike."""
    return "".join(
        f"{key}:\n" + "".join(f'  - "{value}"\n' for value in listed)
        for key, listed in sorted(values.items())
    )


def render() -> str:
    """The text that belongs into the committed file."""
    return HEADER + to_yaml(variants(config.load(), settings.load()))


def write() -> None:
    """Rebuild the committed file."""
    write_atomically(PATH, render())


def drift() -> str:
    """How the committed file differs from matrix.toml, as a diff; empty when it does not."""
    committed = config.read_text(PATH) if PATH.exists() else ""
    return "".join(
        difflib.unified_diff(
            committed.splitlines(keepends=True),
            render().splitlines(keepends=True),
            "recipe/conda_build_config.yaml",
            "made from matrix.toml",
        )
    )


def check() -> tuple[str, ...]:
    """Every way in which the committed recipe departs from its sources, each in one sentence."""
    found = []
    if changed := drift():
        found.append(
            "recipe/conda_build_config.yaml has drifted from matrix.toml; run "
            f"`torchproof run --write`:\n{changed}"
        )
    if config.recipe_version() != config.version():
        found.append(
            f"recipe/recipe.yaml states version {config.recipe_version()}, "
            f"{config.project().version} {config.version()}; write the latter into the recipe"
        )
    return tuple(found)
