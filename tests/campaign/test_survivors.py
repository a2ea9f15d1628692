"""What explains a mutant that no test kills is about a line that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchproof.config import read_toml

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "campaign" / "survivors.toml"
SURVIVORS = [row["mutant"] for row in read_toml(TABLE)["survivor"]]


@pytest.mark.parametrize("mutant", SURVIVORS)
def test_the_line_that_was_changed_is_there(mutant: str) -> None:
    found = re.fullmatch(r"(?P<file>\S+): \S+: `(?P<line>.+)`: .+", mutant)
    assert found, "expected FILE: FUNCTION: `LINE`: OLD -> NEW"
    assert found["line"] in (ROOT / found["file"]).read_text(encoding="utf-8")
