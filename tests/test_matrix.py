"""matrix.toml beside what torchproof knows."""

from __future__ import annotations

import re

import pytest
from torchproof.conda import suite
from torchproof.report import readme

from torchproof import config, made
from torchproof import matrix as tool

DOCS = config.ROOT / "docs"
COMMAND = re.compile(r"`nox -s matrix -- ([^`]*--select [^`]*)`")
# Not known here, but to whoever adds it.
MADE_UP = "2.99"


def test_the_drivers_that_a_build_writes_down_are_the_known_ones() -> None:
    written = {row["version"]: row["driver"] for row in config.read_toml(config.PATH)["cuda"]}
    assert written == {row.version: row.driver for row in config.known().cuda}


def test_what_is_committed_is_what_matrix_toml_makes() -> None:
    makers = made.makers()
    assert readme in makers
    assert [line for maker in makers for line in maker.check()] == []


def test_the_halves_of_the_full_suite_leave_nothing_out_and_run_nothing_twice() -> None:
    matrix = config.load()
    full = matrix.suite("full")
    one, other = map(matrix.suite, suite.FULL)
    assert one.paths == other.paths == full.paths[:1] == ("tests/op",)
    assert tuple(full.arguments) == ()
    option, marks = one.arguments
    assert (option, f"not ({marks})") == tuple(other.arguments)
    assert option == "-m"


def documented() -> list[str]:
    """The options of every command of the pages that chooses rows."""
    pages = sorted(DOCS.rglob("*.md"))
    found = [each for page in pages for each in COMMAND.findall(page.read_text(encoding="utf-8"))]
    assert found
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("options", documented())
def test_a_command_of_the_pages_chooses_rows_that_there_are(options: str) -> None:
    newest = config.load().torch[-1].series
    words = options.replace(MADE_UP, newest).replace("--record", "--list").split()
    assert tool.main([*words, "--json", "--list"]) == 0
