"""The JSON Schema that editors read accepts and refuses what torchproof does."""

from __future__ import annotations

import json

import jsonschema
import pytest

from torchproof import config, schema

TEXT = config.PATH.read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(schema.schema())


def test_the_committed_schema_is_what_the_dataclasses_make() -> None:
    made = schema.PATH.read_text(encoding="utf-8") == schema.text()
    assert made, "python -m torchproof.schema writes it again"
    jsonschema.Draft202012Validator.check_schema(json.loads(schema.text()))


def test_a_projects_file_and_the_facts_are_valid() -> None:
    VALIDATOR.validate(config.read_toml(config.PATH))
    VALIDATOR.validate({"stable": {"target": "2.10", "headers": "2.13"}, **config.facts().document})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("minutes = 20 }", 'minutes = "20" }'),
        ("minutes = 20 }", "minuets = 20 }"),
        ('{ name = "full", paths', "{ paths"),
        ('paths = ["tests"]', "paths = [1]"),
        ('driver = "525.60"', "driver = 525.60"),
        ("spans_torch = false", "spans_torch = 0"),
        ('torch_below = "3"', "torch_below = 3"),
        ("[conda]", "[konda]"),
    ],
)
def test_what_torchproof_refuses_is_invalid(old: str, new: str) -> None:
    wrong = TEXT.replace(old, new, 1)
    with pytest.raises(config.ConfigError):
        config.loads(wrong)
    assert not VALIDATOR.is_valid(config.Source.of(wrong).document)
