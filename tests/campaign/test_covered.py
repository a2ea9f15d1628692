"""What the campaign `coverage` makes of what it has measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import covered
import pytest
from covered import Measured

PART = Measured("C++", lines=100, covered=97, missed=(), missed_lines={})
TABLE = """
[[away]]
file = "csrc/away.cpp"
why = "is left out"

[[not_covered]]
file = "csrc/here.cpp"
function = "excused*"
why = "has a reason"
"""
HERE = "int away(int);\nint missed() { return 1; }\nint main() { return away(0); }\n"
AWAY = "int away(int n) {\n  if (n) return 1;\n  return 0;\n}\n"


def test_tests_that_fail_are_a_finding() -> None:
    assert covered.findings([PART], {"the stable binding": 0, "torchproof": 0}) == []
    (found,) = covered.findings([PART], {"the stable binding": 0, "torchproof": 1})
    assert "torchproof" in found
    assert "failed" in found


def test_the_figure_is_shown_without_and_with_what_is_not_counted() -> None:
    left_out = Measured("C++", 100, 97, (), {}, left_out=50, left_out_covered=2)
    assert covered.figures([left_out]) == {
        "C++ (%)": 97.0,
        "C++, not counted": 50,
        "C++ with what is not counted (%)": 66.0,
    }
    assert covered.figures([PART]) == {"C++ (%)": 97.0}


def test_cxx_that_is_not_counted_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "not_covered.toml"
    table.write_text(TABLE)
    sources = tmp_path / "stable" / "tree" / "csrc"
    sources.mkdir(parents=True)
    for name, text in (("here.cpp", HERE), ("away.cpp", AWAY)):
        (sources / name).write_text(text)
    built = sources.parent / "build"
    built.mkdir()
    command = ["g++", "--coverage", *map(str, sorted(sources.iterdir())), "-o", "program"]
    subprocess.run(command, cwd=built, check=True)
    subprocess.run([built / "program"], check=True)
    monkeypatch.setattr(covered, "TABLE", table)
    monkeypatch.setattr(covered, "HOME", tmp_path)
    monkeypatch.setattr(covered, "ROOT", sources.parent)

    found = covered.read_cxx(("stable",))

    assert [function.name for function in found.missed] == ["missed()"]
    assert (found.lines, found.covered) == (2, 1)
    assert (found.left_out, found.left_out_covered) == (3, 3)
    (finding,) = covered.findings([found], {})[1:]
    assert finding.startswith("csrc/here.cpp:2: missed()")
