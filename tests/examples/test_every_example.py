"""What holds for all of them: a test of its own, a place in the pages, a command that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
PAGE = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
TESTS = EXAMPLES.parent / "tests" / "examples"


@pytest.mark.parametrize("name", NAMES)
def test_is_tested_and_shown(name):
    assert f'run("{name}"' in (TESTS / f"test_{name}.py").read_text(encoding="utf-8")
    assert f"`examples/{name}.py`" in PAGE
    assert f"    python examples/{name}.py" in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def test_there_are_examples():
    assert len(NAMES) >= 6
