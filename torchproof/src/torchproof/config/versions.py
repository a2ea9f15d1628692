"""Versions as matrix.toml spells them, compared."""

import re

from torchproof.errors import ConfigError


def series(version: str) -> str:
    """What decides compatibility: "2.13" of "2.13.0", "3.14t" of the free-threaded "3.14.7t"."""
    freethreaded = "t" if version.endswith("t") else ""
    return ".".join(version.removesuffix("t").split(".")[:2]) + freethreaded


def is_version(text: str) -> bool:
    """Whether a text is numbers with points between them, such as "2.28"."""
    return re.fullmatch(r"[0-9]+(?:\.[0-9]+)*", text) is not None


def number(version: str) -> tuple[int, ...]:
    """A version as numbers, to be compared: "2.13" -> (2, 13); "3.14t" is just above "3.14"."""
    try:
        parts = tuple(int(part) for part in version.removesuffix("t").split("."))
    except ValueError:
        raise ConfigError(
            f"{version!r} is no version: expected numbers with points, such as 2.13.0"
        ) from None
    return (*parts, 0) if version.endswith("t") else parts
