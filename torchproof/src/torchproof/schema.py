"""A JSON Schema of matrix.toml, made from the dataclasses that read it; for editors and CI.

`python -m torchproof.schema` writes it into data/.
"""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

from torchproof import config
from torchproof.files import write_atomically

PATH = Path(__file__).parent / "data" / "matrix.schema.json"
STRINGS = {"type": "array", "items": {"type": "string"}}
PLAIN = {str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}}


def schema() -> dict[str, Any]:
    """The whole file's."""
    arrays = {
        name: {"type": "array", "items": _table(kind, required=key is None, key=key)}
        for name, (kind, key) in config.ARRAYS.items()
    }
    known = config.facts().document
    sections = {
        name: _table(kind, required=name not in known) for name, kind in config.SECTIONS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "matrix.toml of torchproof",
        "type": "object",
        "additionalProperties": False,
        "properties": {"stable": _table(config.Stable), **arrays, **sections},
    }


def _table(kind: type, *, required: bool = True, key: str | None = None) -> dict[str, Any]:
    """A dataclass. A row of a table that the facts have needs its key alone."""
    types = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.name != "line"]
    needed = [name for name in config.required(kind) if name != "line"]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip().splitlines()[0],
        "additionalProperties": False,
        "required": needed if required else [key] if key else [],
        "properties": {field.name: _value(types[field.name]) for field in fields},
    }


def _value(expected: Any) -> dict[str, Any]:
    if expected == tuple[str, ...]:
        return {"anyOf": [PLAIN[str], STRINGS]}
    if typing.get_origin(expected) is dict:
        return {"type": "object", "additionalProperties": _value(typing.get_args(expected)[1])}
    return PLAIN[expected] if expected in PLAIN else _table(expected)


def text() -> str:
    """The file in data/."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    write_atomically(PATH, text())
