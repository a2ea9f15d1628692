"""`matrix.toml` as frozen tables: what is named there, and on which line."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchproof.config.sections import (
    Audit,
    CondaVariants,
    Project,
)
from torchproof.config.source import (
    Source,
    read_rows,
    read_table,
    read_text,
    read_toml,
    read_value,
    required,
)
from torchproof.config.tables import (
    HOME,
    HOST,
    Compiler,
    Copy,
    Cuda,
    Emulator,
    ExternalCheck,
    Known,
    Level,
    Matrix,
    Platform,
    RowSpec,
    Stable,
    Suite,
    System,
    Tier,
    Torch,
)
from torchproof.config.versions import is_version, number, series
from torchproof.errors import ConfigError

__all__ = [
    "ARRAYS",
    "FILE",
    "HOME",
    "HOST",
    "PATH",
    "ROOT",
    "SECTIONS",
    "Audit",
    "Compiler",
    "CondaVariants",
    "ConfigError",
    "Cuda",
    "Emulator",
    "Known",
    "Level",
    "Matrix",
    "Platform",
    "RowSpec",
    "Source",
    "Stable",
    "Suite",
    "System",
    "Torch",
    "audit",
    "conda",
    "facts",
    "find_root",
    "is_version",
    "known",
    "line_of",
    "load",
    "loads",
    "number",
    "project",
    "read_rows",
    "read_text",
    "read_toml",
    "recipe_version",
    "required",
    "series",
    "version",
]

FILE = "matrix.toml"


def find_root(start: Path) -> Path:
    """The nearest folder upward from `start` that has a matrix.toml; `start` where none has."""
    start = start.resolve()
    return next((f for f in (start, *start.parents) if (f / FILE).is_file()), start)


# The project that the working directory is in.
ROOT = find_root(Path.cwd())
PATH = ROOT / FILE


@lru_cache
def facts() -> Source:
    """What is true for every project: torch, compilers, CUDA, distributions."""
    return Source.of(
        (Path(__file__).parents[1] / "data" / "facts.toml").read_text(encoding="utf-8")
    )


# The arrays of matrix.toml, and the key that names a row of those that a project adds to.
ARRAYS: dict[str, tuple[type, str | None]] = {
    "torch": (Torch, "version"),
    "compilers": (Compiler, "name"),
    "cuda": (Cuda, "version"),
    "platforms": (Platform, "name"),
    "emulators": (Emulator, "platform"),
    "suites": (Suite, None),
    "tiers": (Tier, None),
    "rows": (RowSpec, None),
    "levels": (Level, None),
    "systems": (System, None),
    "copies": (Copy, None),
    "external_checks": (ExternalCheck, None),
}
SECTIONS: dict[str, type] = {"project": Project, "audit": Audit, "conda": CondaVariants}


def _array(source: Source, name: str) -> tuple[Any, ...]:
    """The rows of an array: those of the facts, as the project changes them, and its own."""
    kind, key = ARRAYS[name]
    rows = source.rows(name)
    _check_twice(name, key or "name", rows)
    if key is None:
        return read_rows(source, name, kind)
    merged = {row[key]: (row, 0) for row, _ in facts().rows(name)}
    for row, line in rows:
        if key in row:  # the others are of no use where it is no text
            read_value(key, str, row[key], line)
        known, _ = merged.get(row.get(key), ({}, 0))
        merged[row.get(key)] = ({**known, **row}, line)
    found: Iterator[Any] = (read_table(kind, row, line) for row, line in merged.values())
    return tuple(sorted(found, key=lambda row: number(row.version)) if key == "version" else found)


def _check_twice(name: str, key: str, rows: list[tuple[dict[str, Any], int]]) -> None:
    """No two rows of the file are named the same, of which only one would count."""
    lines: dict[str, int] = {}
    for row, line in rows:
        stated = row.get(key)
        if not isinstance(stated, str):
            continue
        if stated in lines:
            raise ConfigError(
                f"line {line}: {name} has the {key} {stated!r} already, on line {lines[stated]}:"
                " keep one of them, or name them apart"
            )
        lines[stated] = line


def known() -> Known:
    """The facts alone."""
    nothing = Source("", {})
    names = [field.name for field in dataclasses.fields(Known)]
    return Known(**{name: _array(nothing, name) for name in names})


def loads(text: str) -> Matrix:
    """Parse the text of a `matrix.toml`.

    Raises:
        ConfigError: the text is not TOML, or a table has a missing, unknown or mistyped key.
    """
    source = Source.of(text)
    check_names(source)
    for name in SECTIONS.keys() & source.document.keys():
        section(source, name)
    arrays = {name: _array(source, name) for name in ARRAYS}
    return Matrix(stable=_stable(source, arrays["torch"], arrays["rows"]), **arrays)


def _stable(source: Source, torches: tuple[Torch, ...], rows: tuple[RowSpec, ...]) -> Stable:
    """The table `stable`; a project without a stable binding needs none, and takes every torch."""
    stated = source.document.get("stable")
    if isinstance(stated, dict):
        line = source.line_of("[stable]") or source.line_of("stable")
        stable = read_table(Stable, stated, line)
        if wrong := _wrong_torch(stable, torches):
            raise ConfigError(f"line {line}: stable.{wrong}")
        return stable
    written = "stable = { target = ..., headers = ... }"
    if stated is not None:
        raise ConfigError(f"line {source.line_of('stable')}: 'stable' must be a table: {written}")
    if any("stable" in row.binding for row in rows):
        raise ConfigError(f"the table 'stable' is missing: {written}")
    return Stable(torches[0].series, torches[-1].series)


def _wrong_torch(stable: Stable, torches: tuple[Torch, ...]) -> str:
    """Why a torch of the table `stable` is none; empty where both are there."""
    names = ", ".join(torch.series for torch in torches)
    try:
        too_new = number(stable.target) > number(torches[-1].version)
    except ConfigError as error:
        return f"target: {error}"
    if too_new:
        return f"target: there is no torch {stable.target} or newer; the torches are {names}"
    if not any(stable.headers in (torch.version, torch.series) for torch in torches):
        return f"headers: there is no torch {stable.headers}; the torches are {names}"
    return ""


def check_names(source: Source) -> None:
    """Every table of the file is one that there is; else ConfigError."""
    known = {"stable", *ARRAYS, *SECTIONS}
    for name in source.document.keys() - known:
        line = source.line_of(f"[{name}]") or source.line_of(name)
        where = f"line {line}: " if line else ""
        raise ConfigError(
            f"{where}unknown table {name!r}; the tables are {', '.join(sorted(known))}"
        )


def section(source: Source, name: str) -> Any:
    """A section, which may add to the facts' own; ConfigError names the line of a wrong key."""
    kind, header = SECTIONS[name], f"[{name}]"
    values = source.document.get(name, {})
    if not isinstance(values, dict):
        raise ConfigError(f"line {source.line_of(name)}: {name!r} must be a section: {header}")
    if name not in {**source.document, **facts().document}:
        raise ConfigError(f"the section is missing: write it with {', '.join(required(kind))}")
    at = {key: source.line_of(header, key) for key in values}
    return read_table(
        kind, {**facts().document.get(name, {}), **values}, source.line_of(header), at
    )


def line_of(header: str, key: str | None = None) -> int:
    """The line of a section of matrix.toml, or of a key below it, as Source.line_of() has it."""
    return Source.of(_text(PATH)).line_of(header, key)


def load(path: Path = PATH) -> Matrix:
    """Read a `matrix.toml`; ConfigError names the file and the line."""
    text = _text(path)
    try:
        return loads(text)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None


@lru_cache
def project(path: Path = PATH) -> Project:
    """The section `[project]`; ConfigError names the file and the line."""
    return typing.cast("Project", _section_of(path, _text(path), "project"))


@lru_cache
def audit(path: Path = PATH) -> Audit:
    """What binaries are checked against; the facts' own where there is no project."""
    text = read_text(path) if path.is_file() else ""
    return typing.cast("Audit", _section_of(path, text, "audit"))


def conda(path: Path = PATH) -> CondaVariants:
    """The section `[conda]`; ConfigError names the file and the line."""
    found: CondaVariants = _section_of(path, _text(path), "conda")
    return found


def version() -> str:
    """The project's version, in the one file that `[project]` names; all else repeats it."""
    path = project().version
    if not path:
        raise ConfigError('[project]: version is missing: name the file with __version__ = "..."')
    if not (ROOT / path).is_file():
        raise ConfigError(f"[project]: version names {path}, which is not there")
    return _stated(path, r'__version__ = "([^"]+)"', '__version__ = "..."')


def recipe_version() -> str:
    """The version that the recipe repeats."""
    path = "recipe/recipe.yaml"
    if not (ROOT / path).is_file():
        raise ConfigError(f"{path} is not there: write it, or take `conda` out of [project]")
    return _stated(path, r'^  version: "([^"]+)"$', 'a line `version: "..."`')


def _stated(path: str, pattern: str, expected: str) -> str:
    found = re.search(pattern, read_text(ROOT / path), re.MULTILINE)
    if found is None:
        raise ConfigError(f"{path}: expected {expected}, found none")
    return found[1]


def _section_of(path: Path, text: str, name: str) -> Any:
    try:
        return section(Source.of(text), name)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: [{name}]: {error}") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(
            f"no {FILE} in {path.parent} or above it: run this in a folder of the project, "
            "or write one"
        )
    return read_text(path)
