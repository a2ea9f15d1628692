"""Every rule catches the row that breaks it, on its line; the project's own file breaks none."""

from __future__ import annotations

import dataclasses

import pytest
from torchproof.rows import row_rules
from torchproof.rows.row_rules import violations

from torchproof import config

TEXT = config.PATH.read_text(encoding="utf-8")
ROW = (
    '{{ tier = "{tier}", torch = "{torch}", python = "{python}", binding = "{binding}", '
    'compiler = "{compiler}", suite = "{suite}"{more} }},'
)
GOOD = {
    "tier": "nightly",
    "torch": "2.13",
    "python": "3.12",
    "binding": "stable",
    "compiler": "default",
    "suite": "core",
    "more": "",
}


def with_row(**changes: str) -> str:
    """The project's file with one more row, the last of the array."""
    row = ROW.format(**{**GOOD, **changes})
    head, array, rest = TEXT.partition("\nrows = [")
    rows, end, tail = rest.partition("\n]\n")
    return f"{head}{array}{rows}\n  {row}{end}{tail}"


def broken_by(text: str) -> list[tuple[int, str]]:
    return [(violation.line, violation.rule) for violation in violations(config.loads(text))]


def test_the_project_breaks_no_rule() -> None:
    assert violations(config.load()) == ()
    assert broken_by(with_row()) == []
    # The runtime is inside a stable library: it loads beside a torch of either CUDA major.
    assert broken_by(with_row(more=', cuda = "12.8"')) == []


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("wheel", {"torch": "2.15", "python": "3.10"}),
        ("stable-target", {"torch": "2.9", "more": ', reason = "old"'}),
        ("reason", {"torch": "2.9", "binding": "native"}),
        ("reason", {"more": ', packages = "real"'}),
        ("compiler-bounds", {"compiler": "g++-99"}),
        ("compiler-bounds", {"compiler": "clang++-13"}),
        ("cuda-host-compiler", {"compiler": "g++-14", "more": ', cuda = "12.6"', "torch": "2.10"}),
        ("cuda-major", {"more": ', cuda = "12.8"', "binding": "native"}),
        ("rows", {"torch": "all", "python": "3.9"}),
        ("rows", {"more": ", cuda = []"}),
        ("names", {"torch": "2.99"}),
        ("names", {"suite": "everything"}),
        ("names", {"binding": "pybind"}),
        ("names", {"compiler": "icpc-19"}),
        ("names", {"tier": "weekly"}),
        ("names", {"more": ', cuda = "11.8"'}),
        ("names", {"more": ', packages = "imagined"'}),
    ],
)
def test_a_rule_catches_its_row(rule: str, changes: dict[str, str]) -> None:
    text = with_row(**changes)
    line = text.splitlines().index("  " + ROW.format(**{**GOOD, **changes})) + 1
    assert (line, rule) in broken_by(text)
    assert {found for _, found in broken_by(text)} <= {rule, "compiler-bounds", "cxx-standard"}


def test_a_matrix_without_a_row_is_caught() -> None:
    head, _, rest = TEXT.partition("\nrows = [")
    text = f"{head}\nrows = []\n{rest.partition(']' + chr(10) + chr(10))[2]}"
    line = text.splitlines().index("rows = []") + 1
    assert (line, "rows") in broken_by(text)


def test_a_suite_whose_tests_are_not_there_is_caught() -> None:
    text = TEXT.replace('{ name = "core", paths = ["tests"]', '{ name = "core", paths = ["test"]')
    assert [rule for _, rule in broken_by(text)] == ["paths"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("local", {"local": "itself"}),
        ("release", dict.fromkeys(("local", "nightly", "release"), "itself, through")),
    ],
)
def test_a_tier_that_includes_itself_is_caught(own: str, expected: dict[str, str]) -> None:
    text = TEXT.replace('name = "local", includes = []', f'name = "local", includes = ["{own}"]')
    text = text.replace('includes = ["pr"]', 'includes = ["pr", "local"]')
    matrix = config.loads(text)
    found = {violation.line: str(violation) for violation in violations(matrix)}
    assert found.keys() == {tier.line for tier in matrix.tiers if tier.name in expected}
    for tier in matrix.tiers:
        if tier.name in expected:
            message = f"[tier-includes] tier {tier.name!r} includes {expected[tier.name]}"
            assert message in found[tier.line]


@pytest.mark.parametrize("minutes", [0, -1])
def test_a_suite_without_time_is_caught(minutes: int) -> None:
    text = TEXT.replace("minutes = 20", f"minutes = {minutes}", 1)
    line = next(at for at, each in enumerate(text.splitlines(), 1) if 'name = "full"' in each)
    assert broken_by(text) == [(line, "minutes")]


@pytest.mark.parametrize("key", ["sources", "kernels"])
def test_a_project_that_is_made_of_nothing_is_caught(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    changed = dataclasses.replace(config.project(), **{key: ()})
    monkeypatch.setattr(row_rules, "project", lambda: changed)
    (found,) = violations(config.load())
    assert TEXT.splitlines()[found.line - 1].startswith(f"{key} = ")
    assert f"[paths] project.{key}: the list is empty" in str(found)


def test_a_suite_without_a_path_is_caught() -> None:
    text = TEXT.replace('{ name = "core", paths = ["tests"]', '{ name = "core", paths = []')
    assert [rule for _, rule in broken_by(text)] == ["paths"]


@pytest.mark.parametrize("path", [".", "decay/..", "..", "../common", "/srv/common"])
def test_sources_that_are_not_below_the_root_are_caught(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    changed = dataclasses.replace(config.project(), sources=("csrc", path))
    monkeypatch.setattr(row_rules, "project", lambda: changed)
    (found,) = [each for each in violations(config.load()) if each.rule == "sources"]
    assert TEXT.splitlines()[found.line - 1].startswith("sources = ")
    assert f"project.sources: {path} is not below the project's root" in str(found)


@pytest.mark.parametrize("name", ["", "my ext", "../x", "torch-scatter", "1st", "class"])
def test_a_project_whose_name_cannot_be_imported_is_caught(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    named = dataclasses.replace(config.project(), name=name)
    monkeypatch.setattr(row_rules, "project", lambda: named)
    (found,) = violations(config.load())
    assert TEXT.splitlines()[found.line - 1] == 'name = "decay"'
    assert f"project.name: {name!r} cannot be imported" in str(found)


def test_a_compiler_too_old_for_torchs_standard_is_caught() -> None:
    older = 'compilers = [ { name = "g++", oldest = 9 } ]\nstable = {'
    text = with_row(compiler="g++-10").replace("stable = {", older, 1)
    assert [rule for _, rule in broken_by(text)] == ["cxx-standard"]


def test_a_tier_without_its_newest_torch_is_caught() -> None:
    newer = (
        'torch = [ { version = "2.16.0", pythons = ["3.12"], cxx = 20, cuda = "13.2" },\n'
        '  { version = "2.15.0", pythons = ["3.11", "3.12", "3.13", "3.14"] } ]\n'
    )
    pinned = TEXT.replace('torch = "newest"', 'torch = "2.15"')
    pinned = pinned.replace('torch = "all"', 'torch = "2.13"').replace(', "3.15", "3.15t"],', "],")
    text = pinned.replace("stable = {", f"{newer}stable = {{", 1)
    assert {rule for _, rule in broken_by(text)} == {"tier-spans-torch"}


def test_a_tier_without_real_packages_is_caught() -> None:
    text = TEXT.replace('packages = "real", ', "")
    assert {rule for _, rule in broken_by(text)} == {"real-packages"}
