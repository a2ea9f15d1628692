"""What is run in the environments that `nox -s conda` installs."""

from __future__ import annotations

from torchproof.conda import suite

from torchproof import config


def test_the_halves_of_the_full_suite_leave_nothing_out_and_run_nothing_twice() -> None:
    matrix = config.load()
    full = matrix.suite("full")
    one, other = map(matrix.suite, suite.FULL)
    assert one.paths == other.paths == full.paths[:1] == ("tests/op",)
    assert tuple(full.arguments) == ()
    option, marks = one.arguments
    assert (option, f"not ({marks})") == tuple(other.arguments)
    assert option == "-m"
