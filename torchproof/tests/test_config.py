"""matrix.toml as tables: every mistake is told with its line."""

from __future__ import annotations

import pytest

from torchproof import config

TEXT = config.PATH.read_text(encoding="utf-8")


def line_of(text: str, part: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), start=1) if part in line)


def test_each_table_knows_its_line() -> None:
    matrix = config.load()
    for release in matrix.torch:
        assert f'version = "{release.version}"' in TEXT.splitlines()[release.line - 1]
    for spec in matrix.rows:
        assert f'tier = "{spec.tier}"' in TEXT.splitlines()[spec.line - 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cxx = 17, cuda = "12.8" }', 'cxx = "17", cuda = "12.8" }', "cxx must be a int, got str"),
        ('cxx = 17, cuda = "12.8" }', 'cxx = 17, kuda = "12.8" }', "unknown key 'kuda'"),
        ('cxx = 17, cuda = "12.8" }', "cxx = 17 }", "the key 'cuda' is missing"),
        ('pythons = ["3.10",', "pythons = [3.10,", "pythons must be a string or a list"),
    ],
)
def test_a_wrong_table_is_told_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(config.ConfigError, match=message) as error:
        config.loads(TEXT.replace(old, new, 1))
    assert f"line {line_of(TEXT, old)}:" in str(error.value)


def test_text_that_is_no_toml_is_told_with_its_line() -> None:
    with pytest.raises(config.ConfigError, match=r"not TOML: .*line 2"):
        config.loads("stable = {}\nrows = [}\n")


def test_a_missing_array_is_named() -> None:
    with pytest.raises(config.ConfigError, match="'torch' is missing"):
        config.loads('stable = { target = "2.10", headers = "2.13" }\n')


def test_versions_compare_as_numbers() -> None:
    assert config.number("2.9.1") < config.number("2.10.0")
    assert config.series("2.10.0") == "2.10"
