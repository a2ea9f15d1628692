"""The section `[conda]` of matrix.toml."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torchproof import config

RECIPE = config.ROOT / "recipe"


@dataclass(frozen=True)
class Facts:
    """What the packages are built for.

    Attributes:
        platforms: conda's names of the platforms every variant is rendered for.
        cuda: the CUDA releases that have a variant, one a major.
        glibc: the oldest C library the packages run on, of Linux.
        torch_below: the first torch the stable package does not claim.
    """

    platforms: tuple[str, ...]
    cuda: tuple[str, ...]
    glibc: str
    torch_below: str


def parse(document: dict[str, Any]) -> Facts:
    """The section, out of the whole file.

    Raises:
        ConfigError: the section or a key is missing, unknown or of the wrong type; a release of
            CUDA is not in `cuda`, or a major has two.
    """
    section = document.get("conda")
    names = {field.name for field in dataclasses.fields(Facts)}
    if not isinstance(section, dict) or section.keys() != names:
        raise config.ConfigError(f"[conda] must have the keys {', '.join(sorted(names))}")
    for name in ("platforms", "cuda"):
        if not isinstance(section[name], list) or not all(
            isinstance(v, str) for v in section[name]
        ):
            raise config.ConfigError(f"[conda] {name} must be a list of strings")
    for name in ("glibc", "torch_below"):
        if not isinstance(section[name], str):
            raise config.ConfigError(f"[conda] {name} must be a string")
    facts = Facts(
        platforms=tuple(section["platforms"]),
        cuda=tuple(section["cuda"]),
        glibc=section["glibc"],
        torch_below=section["torch_below"],
    )
    known = {row["version"] for row in document["cuda"]}
    if unknown := set(facts.cuda) - known:
        raise config.ConfigError(f"[conda] CUDA {', '.join(sorted(unknown))} is not in `cuda`")
    majors = [version.split(".")[0] for version in facts.cuda]
    if len(majors) != len(set(majors)):
        raise config.ConfigError("[conda] cuda names two releases of one major; keep one")
    return facts


def load() -> Facts:
    """The section of the committed matrix.toml."""
    return parse(config.read_toml(config.PATH))
