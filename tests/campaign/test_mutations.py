"""What the campaign `mutants` changes, and that C++ without a number is what it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tree_sitter", reason="not run: `nox -s mutants` installs tree-sitter")
import mutations

PYTHON = '''
class Box:
    LIMIT = 3

    def room(self, used: int = 0) -> int:
        """The room that is left."""
        if used >= self.LIMIT and not self.grows:
            self.log(used)
            return 0
        return self.LIMIT - used
'''
CXX = """
#include <cstdio>
constexpr int kLimit = 3;
template <int N> int first() { return N; }
int room(int used) {
  static_assert(kLimit > 2, "constant");
  int left = kLimit - used;
  if (left < 0) left = 0;
  return left + first<1 + 1>();
}
int main() { std::printf("%d %d", room(1), room(5)); }
"""


def changes(path: Path, text: str) -> list[mutations.Mutant]:
    path.write_text(text)
    return mutations.find(path, path.name)


def test_what_python_changes_to(tmp_path: Path) -> None:
    found = {(m.old, m.new) for m in changes(tmp_path / "box.py", PYTHON)}
    assert {
        ("used >= self.LIMIT", "used > self.LIMIT"),
        ("not self.grows", "self.grows"),
        ("self.log(used)", "pass"),
        ("return self.LIMIT - used", "return None"),
        ("self.LIMIT - used", "self.LIMIT + used"),
        ("0", "1"),
    } <= found
    # What is read once, and not when a test runs.
    assert not any(
        m.text.startswith(("LIMIT", "def", '"')) for m in changes(tmp_path / "b.py", PYTHON)
    )


def test_every_mutant_of_python_is_python(tmp_path: Path) -> None:
    path = tmp_path / "box.py"
    for mutant in changes(path, PYTHON):
        changed = mutations.mutate(path.read_bytes(), mutant)
        compile(changed, mutant.name, "exec")
        assert changed != path.read_bytes()


def test_a_library_of_mutants_is_the_source_until_one_is_chosen(tmp_path: Path) -> None:
    source = tmp_path / "room.cpp"
    numbered = dict(enumerate(mutations.choose(changes(source, CXX), 100, seed=1)))
    source.write_bytes(mutations.schemata(source.read_bytes(), numbered))
    program = tmp_path / "room"
    header = Path(mutations.__file__).with_name("mutant.h")
    subprocess.run(["c++", "-std=c++17", "-include", header, source, "-o", program], check=True)

    def printed(number: int) -> str:
        run = subprocess.run(
            [program], env={"LLTM_MUTANT": str(number)}, capture_output=True, text=True, check=True
        )
        return run.stdout

    assert printed(-1) == "4 2"
    by_change = {mutant.new: number for number, mutant in numbered.items()}
    assert printed(by_change["kLimit + used"]) == "6 10"
    # The compiler reads these.
    assert not {"kLimit > 2", "1 + 1", "3"} & {mutant.old for mutant in numbered.values()}


def test_the_choice_in_one_source_does_not_move_the_choice_in_another(tmp_path: Path) -> None:
    one, other = changes(tmp_path / "a.py", PYTHON), changes(tmp_path / "b.py", PYTHON)
    chosen = mutations.choose([*one, *other], 8, seed=3)
    again = mutations.choose(one, 8, seed=3)
    assert {m.name for m in chosen if m.file == "a.py"} <= {m.name for m in again}
    assert chosen != mutations.choose([*one, *other], 8, seed=4)
    assert not any(a.overlaps(b) for a in chosen for b in chosen if a is not b)


def test_every_chosen_mutant_has_a_name_of_its_own(tmp_path: Path) -> None:
    found = changes(tmp_path / "twice.py", "def padded(n):\n    return n // 4 * (n + 4)\n")
    assert len({mutant.name for mutant in found}) < len(found)
    names = [mutant.name for mutant in mutations.choose(found, 100, seed=1)]
    assert len(set(names)) == len(names)
