"""matrix.toml beside what torchproof knows."""

from __future__ import annotations

from torchproof.conda import suite
from torchproof.report import readme

from torchproof import config, made


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
