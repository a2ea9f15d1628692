"""matrix.toml as tables: every mistake is named with its line; torchproof has facts of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torchproof.rows.row_rules import violations

from torchproof import config

if TYPE_CHECKING:
    from pathlib import Path

ROW = (
    'rows = [ {{ tier = "a", torch = "all", python = "running", binding = "{binding}", '
    'compiler = "g++", suite = "b" }} ]'
)
TEXT = config.PATH.read_text(encoding="utf-8")


def line_of(text: str, part: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), start=1) if part in line)


def test_each_table_knows_its_line() -> None:
    matrix = config.load()
    for suite in matrix.suites:
        assert f'name = "{suite.name}"' in TEXT.splitlines()[suite.line - 1]
    for spec in matrix.rows:
        assert f'tier = "{spec.tier}"' in TEXT.splitlines()[spec.line - 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minutes = 20 }", 'minutes = "20" }', "minutes must be a int, got str"),
        ("minutes = 20 }", "minuets = 20 }", "unknown key 'minuets'"),
        ('{ name = "full", paths', '{ name = "full", path', "unknown key 'path'"),
        ('{ name = "full", paths', "{ paths", "the key 'name' is missing"),
        ('paths = ["tests"]', "paths = [1]", "paths must be a string or a l"),
        ('driver = "525.60"', "driver = 525.60", "driver must be a str, got float 525.6"),
        ("spans_torch = false", "spans_torch = 0", "spans_torch must be a bool, got int 0"),
        ('torch_below = "3"', "torch_below = 3", "torch_below must be a str, got int 3"),
        (
            'torch_below = "3"',
            'torch_below = "three"',
            "torch_below must be a version such as 2.28",
        ),
        ("[conda]", "[konda]", "unknown table 'konda'; the tables are audit, compilers, conda"),
        ("rows = [", "foo=1\nrows = [", "unknown table 'foo'; the tables are audit"),
        (
            '{ version = "12.6"',
            '{ gxx = 13, clangxx = 18, version = "12.6+x"',
            r"version must be numbers with points, such as 2\.13\.0, got '12\.6\+x'",
        ),
        (
            "cuda = [\n",
            'torch = [ { version = "2.16.0rc1", pythons = "3.11", cxx = 20, cuda = "13.2" } ]\n'
            "cuda = [\n",
            r"version must be numbers with points, such as 2\.13\.0, got '2\.16\.0rc1'",
        ),
        ('target = "2.10"', 'target = "x"', "stable.target: 'x' is no version: expected numbers"),
        ('target = "2.10"', 'target = "9.10"', "stable.target: there is no torch 9.10 or newer; "),
        (
            'headers = "2.13"',
            'headers = "9.9"',
            "stable.headers: there is no torch 9.9; the torches",
        ),
    ],
)
def test_a_wrong_table_is_named_with_its_line(old: str, new: str, message: str) -> None:
    wrong = TEXT.replace(old, new, 1)
    with pytest.raises(config.ConfigError, match=message) as error:
        config.loads(wrong)
    changed = next(line for line in new.splitlines() if line and line not in TEXT.splitlines())
    assert str(error.value).startswith(f"line {line_of(wrong, changed)}:")


@pytest.mark.parametrize("text", [r"'#1 [{'", r'"\"[{ #1"', "'\"'", r'"\\"'])
def test_a_string_of_any_kind_may_have_any_character(text: str) -> None:
    suites = f'suites = [ {{ name = {text}, paths = "tests" }} ]\n'
    matrix = config.loads(f'{suites}levels = [ {{ name = "a", hidden = [] }} ]\n')
    assert [suite.line for suite in matrix.suites] == [1]
    assert [level.line for level in matrix.levels] == [2]


@pytest.mark.parametrize("end", ["\n", " "])
def test_a_name_that_is_there_twice_is_refused(end: str) -> None:
    suite = '{ name = "full", paths = ["other"] },'
    wrong = TEXT.replace("suites = [", f"suites = [{end}{suite}", 1)
    first = line_of(wrong, suite)
    again = next(s.line for s in config.load().suites if s.name == "full") + (end == "\n")
    with pytest.raises(config.ConfigError) as error:
        config.loads(wrong)
    assert str(error.value).startswith(f"line {again}: suites has the name 'full' already")
    assert f"on line {first}:" in str(error.value)


def test_a_compiler_that_is_there_twice_is_refused() -> None:
    row = '{ name = "g++", newest = 15 }'
    wrong = f"compilers = [ {row}, {row} ]\n{TEXT}"
    with pytest.raises(config.ConfigError, match="line 1: compilers has the name 'g\\+\\+' al"):
        config.loads(wrong)


def test_a_byte_order_mark_is_named() -> None:
    with pytest.raises(config.ConfigError, match="begins with a byte order mark: save it as"):
        config.loads(f"\ufeff{TEXT}")


def test_a_typo_in_audit_is_named_with_its_line() -> None:
    wrong = TEXT + '\n[audit]\nceilings = { glibc = "2.28" }\n'
    lacks = "the keys 'glibcxx', 'cxxabi' are missing"
    with pytest.raises(config.ConfigError, match=lacks) as error:
        config.loads(wrong)
    assert f"line {line_of(wrong, 'ceilings = ')}:" in str(error.value)
    wrong = TEXT + '\n[audit]\nabi4 = "3.10"\n'
    with pytest.raises(config.ConfigError, match="unknown key 'abi4'; the keys here are abi3") as e:
        config.loads(wrong)
    assert f"line {line_of(wrong, 'abi4')}:" in str(e.value)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (TEXT.replace("[conda]\n", "[ conda ]\nglibk = 1\n"), "glibk"),
        (TEXT.replace("[conda]\n", '["conda"]\n"glibk" = 1\n'), "glibk"),
        (TEXT.replace("[conda]\n", "[conda]\nglibk.a = 1\n"), "glibk"),
        ("foo.bar = 1", "foo"),
        (f'{TEXT}\n[audit.ceilings]\nglibc = "2.28"\n', "[audit.ceilings]"),
        (f'{TEXT}\n["audit".ceilings]\nglibc = "2.28"\n', '["audit".ceilings]'),
    ],
)
def test_a_line_is_found_however_toml_lets_it_be_written(wrong: str, part: str) -> None:
    with pytest.raises(config.ConfigError) as error:
        config.loads(wrong)
    assert str(error.value).startswith(f"line {line_of(wrong, part)}:")


@pytest.mark.parametrize("value", ["5", '["2.10"]', '"2.10"'])
def test_a_stable_that_is_no_table_is_not_missing(value: str) -> None:
    wrong = f"{ROW.format(binding='stable')}\nstable = {value}\n"
    with pytest.raises(config.ConfigError, match=r"line 2: 'stable' must be a table: stable = \{"):
        config.loads(wrong)


def test_the_section_stable_is_not_the_key_of_that_name() -> None:
    tables = ("stable = ", "build = ")
    rest = "\n".join(line for line in TEXT.splitlines() if not line.startswith(tables))
    build = "[project.build]\nstable = { CXXFLAGS = '' }\n"
    wrong = f"{rest}\n{build}[stable]\ntarget = 'x'\nheaders = '2.13'\n"
    with pytest.raises(config.ConfigError, match=r"stable\.target: 'x' is no version") as error:
        config.loads(wrong)
    assert str(error.value).startswith(f"line {line_of(wrong, '[stable]')}:")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('ceilings = { glibc = "x", glibcxx = "3.4.24", cxxabi = "1.3.11" }', "glibc"),
        ('ceilings = { glibc = "2.28", glibcxx = "3.4.24", cxxabi = "" }', "cxxabi"),
        ('cxx17 = { gcc = "9.3", clang = "9.0t" }', "clang"),
        ('gcc_abi = "old"', "gcc_abi"),
    ],
)
def test_a_version_of_the_audit_that_is_none_is_named(line: str, name: str) -> None:
    wrong = f"{TEXT}\n[audit]\n\n{line}\n"
    message = f"{name} must be a version such as 2.28, got"
    with pytest.raises(config.ConfigError, match=message) as error:
        config.loads(wrong)
    place = wrong.splitlines().index(line) + 1
    assert str(error.value).startswith(f"line {place}:")


def test_a_project_without_a_stable_binding_names_no_torch_for_one() -> None:
    matrix = config.loads(ROW.format(binding="native"))
    assert matrix.supporting("native") == matrix.torch
    assert matrix.headers == matrix.torch[-1]


def test_what_is_not_a_table_is_refused() -> None:
    with pytest.raises(config.ConfigError, match="'torch' must be an array of tables"):
        config.loads('stable = { target = "2.10", headers = "2.13" }\ntorch = "2.13"\n')
    with pytest.raises(config.ConfigError, match="'torch' must be written as torch = "):
        config.loads('[[torch]]\nversion = "2.13.0"\n')
    with pytest.raises(config.ConfigError, match="the table 'stable' is missing"):
        config.loads(ROW.format(binding="stable"))
    with pytest.raises(config.ConfigError, match="not TOML"):
        config.loads("stable = {")
    with pytest.raises(config.ConfigError, match="not TOML that can be read: it is nes"):
        config.loads(f"x = {'[' * 5000}")


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    path.write_bytes("# Größen\n".encode("latin-1"))
    for read in (config.load, config.project, config.audit, config.conda, config.read_toml):
        with pytest.raises(config.ConfigError, match="not UTF-8 at line 1") as error:
            read(path)
        assert str(error.value).count(str(path)) == 1
    path.write_text("stable = {", encoding="utf-8")
    with pytest.raises(config.ConfigError, match=f"{path}: not TOML"):
        config.read_toml(path)


def test_what_has_no_line_is_named_without_one(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text("")
    with pytest.raises(config.ConfigError) as error:
        config.project(tmp_path / "matrix.toml")
    message = (
        "[project]: the section is missing: write it with name, sources, kernels, tests, smoke"
    )
    assert str(error.value) == f"matrix.toml: {message}"
    with pytest.raises(config.ConfigError, match=r"^unknown table 'foo'"):
        config.loads(r'"f\u006fo" = 1')


SHORT = """
stable = { target = "2.10", headers = "2.13" }
suites = [ { name = "all", paths = ["tests"] } ]
tiers = [ { name = "local" } ]
rows = [
  { tier = "local", torch = "all", python = "3.11", binding = "stable", compiler = "default", suite = "all" },
]
"""  # noqa: E501 - a row as users write it


def test_a_short_file_is_a_whole_matrix() -> None:
    matrix = config.loads(SHORT)
    assert violations(matrix) == ()
    assert matrix.torch == config.known().torch
    assert matrix.suite("all").minutes > 0


def test_a_project_adds_a_torch_and_changes_a_key_of_another() -> None:
    facts = {release.version: release for release in config.known().torch}
    newest = config.known().torch[-1]
    added = (
        'torch = [\n{ version = "2.99.0", pythons = ["3.14"], cxx = 20, cuda = "13.2" },\n'
        f'{{ version = "{newest.version}", cuda = "12.8" }},\n]\n'
    )
    found = {release.version: release for release in config.loads(SHORT + added).torch}
    assert list(found) == [*facts, "2.99.0"]
    assert found[newest.version].cuda == "12.8"
    assert found[newest.version].pythons == newest.pythons


def test_the_facts_hold_where_there_is_no_project(tmp_path: Path) -> None:
    audit = config.audit(tmp_path / "matrix.toml")
    assert audit.ceilings.glibc
    assert {row.version for row in config.known().cuda} == audit.ptx.keys()
