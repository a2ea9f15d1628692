"""A TOML file as dataclasses: what is wrong in it is named with its line."""

import dataclasses
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torchproof.errors import ConfigError, WrongKeyError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STRING_OR_COMMENT = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|#.*""")
SECTION = re.compile(r"\s*\[\[?[\w.-]+\]\]?\s*")
Table = TypeVar("Table")


@dataclass(frozen=True)
class Source:
    """The text of a file, and what it holds."""

    text: str
    document: dict[str, Any]

    @staticmethod
    def of(text: str) -> "Source":
        """Parse a text; ConfigError where it is not TOML."""
        if text.startswith("\ufeff"):
            raise ConfigError(
                "not TOML: it begins with a byte order mark: save it as UTF-8 without one"
            )
        try:
            return Source(text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"not TOML: {error}") from None
        except RecursionError:
            raise ConfigError("not TOML that can be read: it is nested too deep") from None

    def rows(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """Each row of an array, and its line."""
        rows = self.document.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError(f"{name!r} must be an array of tables: {name} = [ {{ ... }}, ... ]")
        lines = list(_lines_of(self.text, name))
        if len(lines) != len(rows):
            raise ConfigError(
                f"{name!r} must be written as {name} = [ {{ ... }}, ... ] before the first "
                "[section], each row on one line: a mistake in it is named with its line"
            )
        return list(zip(rows, lines, strict=True))

    def line_of(self, header: str, key: str | None = None) -> int:
        """The line of a section's header, or of a key below it; the header's where it has none."""
        keys = [_key(line) for line in self.text.splitlines()]
        below = f"{header.removesuffix(']')}."
        start = next((at for at, found in enumerate(keys, 1) if found == header), 0) or next(
            (at for at, found in enumerate(keys, 1) if found.startswith(below)), 0
        )
        for at, found in enumerate(keys[start:], start + 1):
            if found.startswith("[") and header.startswith("["):
                break
            if key and found.partition(".")[0] == key:
                return at
        return start


def _key(line: str) -> str:
    """What a line gives a value to, or the header that it is, without white space and quotes."""
    return re.sub(r"[\s\"']", "", line.partition("#")[0].partition("=")[0])


def required(kind: type) -> list[str]:
    """The keys that a table must have."""
    missing = {dataclasses.MISSING}
    fields = dataclasses.fields(kind)
    return [f.name for f in fields if {f.default, f.default_factory} == missing]


def read_table(
    kind: type[Table], values: Mapping[str, Any], line: int, at: Mapping[str, int] | None = None
) -> Table:
    """One table as a dataclass; a string stands for a list of one.

    `line` is the table's, and `at` has those of its keys, where they have lines of their own.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # TypeVar of dataclasses
    types = typing.get_type_hints(kind)
    given = dict(values, line=line) if "line" in fields else dict(values)
    at = at or {}
    for unknown in given.keys() - fields.keys():
        known = ", ".join(sorted(fields.keys() - {"line"}))
        raise ConfigError(
            f"line {at.get(unknown, line)}: unknown key {unknown!r}; the keys here are {known}"
        )
    if missing := [repr(name) for name in required(kind) if name not in given]:
        keys = f"key {missing[0]} is" if len(missing) == 1 else f"keys {', '.join(missing)} are"
        raise ConfigError(f"line {line}: the {keys} missing")
    for name in given:
        given[name] = read_value(name, types[name], given[name], at.get(name, line))
    try:
        return kind(**given)
    except WrongKeyError as error:
        raise ConfigError(f"line {at.get(error.key, line)}: {error}") from None


def read_value(name: str, expected: Any, value: Any, line: int) -> Any:
    """A value as a field's type has it."""
    if expected == tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise _mistyped(name, "a string or a list of strings", value, line)
        return tuple(items)
    is_table = isinstance(expected, type) and dataclasses.is_dataclass(expected)
    if is_table or typing.get_origin(expected) is dict:
        if not isinstance(value, dict):
            raise _mistyped(name, "a table", value, line)
        if is_table:
            return read_table(expected, value, line)
        inner = typing.get_args(expected)[1]
        return {key: read_value(f"{name}.{key}", inner, held, line) for key, held in value.items()}
    if type(value) is not expected:
        raise _mistyped(name, f"a {expected.__name__}", value, line)
    return value


def _mistyped(name: str, expected: str, value: Any, line: int) -> ConfigError:
    kind = type(value).__name__
    return ConfigError(f"line {line}: {name} must be {expected}, got {kind} {value!r}")


def _lines_of(text: str, name: str) -> Iterator[int]:
    """The line of each inline table in the array `name`; TOML keeps an inline table on one line."""
    depth = 0
    for at, line in enumerate(text.splitlines(), start=1):
        plain = STRING_OR_COMMENT.sub("", line)
        if depth == 0 and SECTION.fullmatch(plain):
            return  # of a section, where the name is another key
        opens = depth == 0 and "".join(plain.split()).startswith(f"{name}=[")
        if opens or depth > 0:
            nested = 0
            for character in plain:
                nested += {"{": 1, "}": -1}.get(character, 0)
                if character == "{" and nested == 1:
                    yield at
            depth += plain.count("[") - plain.count("]")
            if depth == 0:
                return


def read_rows(source: Source, name: str, kind: type[Table]) -> tuple[Table, ...]:
    """The rows of an array as dataclasses; ConfigError names the line of a wrong key."""
    return tuple(read_table(kind, row, line) for row, line in source.rows(name))


def read_text(path: Path) -> str:
    """The text of a file; ConfigError names one that is not UTF-8, with the line."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: not UTF-8 at line {line}: save it in that encoding") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, on any CPython; ConfigError names one that is none."""
    text = read_text(path)
    try:
        return Source.of(text).document
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
