"""Committed files made from matrix.toml: by this tool, and by modules of the project."""

import importlib
import sys
from collections.abc import Sequence
from typing import Protocol

from torchproof import config, copies
from torchproof.conda import variants
from torchproof.report import readme


class Maker(Protocol):
    """A module that makes files."""

    def check(self) -> Sequence[str]:
        """Each file that is not as it would be made, in one sentence."""

    def write(self) -> None:
        """Make the files."""


def makers() -> tuple[Maker, ...]:
    """Every module that makes files of this project.

    Raises:
        ConfigError: matrix.toml names a module that is not there, or makes no files.
    """
    project = config.project()
    recipe = [variants] if project.conda.packages else []
    tables = [readme] if readme.has_tables() else []
    return (*tables, *recipe, copies, *map(_module, project.made))


def _module(name: str) -> Maker:
    if not all(map(str.isidentifier, name.split("."))):
        raise _no_maker(name, "it is no name of a module")
    if str(config.ROOT) not in sys.path:
        sys.path.append(str(config.ROOT))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _no_maker(name, str(error)) from None
    for function in ("check", "write"):
        if not callable(getattr(module, function, None)):
            raise _no_maker(name, f"it has no {function}()")
    return module


def _no_maker(name: str, reason: str) -> config.ConfigError:
    return config.ConfigError(
        f"{config.FILE}: project.made names {name!r}: {reason}; name a module that has check() "
        "and write(), as Python imports it from the project's root"
    )
