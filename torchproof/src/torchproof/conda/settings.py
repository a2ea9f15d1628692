"""The section `[conda]` of matrix.toml."""

from torchproof import config
from torchproof.config import CondaVariants, Matrix

RECIPE = config.ROOT / "recipe"


def check(variants: CondaVariants, matrix: Matrix) -> CondaVariants:
    """The section, where it agrees with the other tables."""
    if unknown := set(variants.cuda) - {row.version for row in matrix.cuda}:
        known = ", ".join(row.version for row in matrix.cuda)
        raise config.ConfigError(
            f"[conda] CUDA {', '.join(sorted(unknown))} is not in `cuda`, which has {known}"
        )
    majors = [version.split(".")[0] for version in variants.cuda]
    if len(majors) != len(set(majors)):
        raise config.ConfigError("[conda] cuda names two releases of one major; keep one")
    return variants


def load() -> CondaVariants:
    """The section of the committed matrix.toml."""
    return check(config.conda(), config.load())
