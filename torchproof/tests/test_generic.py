"""The tool is for any project: none is named in it, and its configuration says all it must know."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchproof import config

DISTRIBUTION = Path(__file__).parents[1]


def tracked() -> list[Path]:
    """Every file of the distribution but the licence, which names its holder."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=DISTRIBUTION, text=True)
    return [DISTRIBUTION / name for name in listed.split("\0") if name not in ("", "LICENSE")]


@pytest.mark.skipif(
    not (DISTRIBUTION.parent / config.FILE).is_file(),
    reason="not run: these are the files of a source distribution, beside no project",
)
def test_no_file_of_the_tool_names_the_project_that_it_is_developed_beside() -> None:
    name = config.project(DISTRIBUTION.parent / config.FILE).name
    files = tracked()
    assert {"src", "tests", "README.md"} <= {f.relative_to(DISTRIBUTION).parts[0] for f in files}
    naming = [
        str(path.relative_to(DISTRIBUTION))
        for path in files
        if name.encode() in f"{path.relative_to(DISTRIBUTION)}".encode() + path.read_bytes().lower()
    ]
    assert naming == []


def write(folder: Path, section: str) -> Path:
    path = folder / config.FILE
    path.write_text(section, encoding="utf-8")
    return path


WHOLE = """
[project]
name = "decay"
version = "decay/version.py"
sources = ["csrc"]
kernels = ["csrc"]
tests = ["tests"]
smoke = "tests/smoke.py"
build = { stable = { DECAY = "s" }, cuda = { DECAY_CUDA = "1" } }
conda = { stable = "decay", tests = "decay-tests" }
"""


def test_a_project_is_what_its_section_says(tmp_path: Path) -> None:
    project = config.project(write(tmp_path, WHOLE))
    assert project.build.of("stable", "13.0") == {"DECAY": "s", "DECAY_CUDA": "1"}
    assert project.build.of("native", "cpu") == {}
    assert project.conda.packages == ("decay", "decay-tests")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "decay"\n', "", "line 2: the key 'name' is missing"),
        ('sources = ["csrc"]\nkernels = ["csrc"]\n', "", "keys 'sources', 'kernels' are missing"),
        ('"csrc"]', '"csrc", 1]', "must be a string or a list of strings, got list"),
        ("kernels", "kernel", "unknown key 'kernel'; the keys here are any_python, benchmarks"),
        ('stable = "decay"', "stable = 1", "stable must be a str, got int 1"),
        ('{ DECAY = "s" }', "{ DECAY = 1 }", "stable.DECAY must be a str, got int 1"),
        ('conda = { stable = "decay", tests = "decay-tests" }', "conda = 1", "a table, got int 1"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(config.ConfigError, match=r"matrix.toml: \[project\]: ") as raised:
        config.project(write(tmp_path, WHOLE.replace(old, new)))
    assert words in str(raised.value)


def test_a_folder_without_a_project_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"no matrix.toml in .* or above it: run this in"):
        config.project(tmp_path / config.FILE)
    assert config.find_root(tmp_path) == tmp_path
    write(tmp_path, WHOLE)
    (tmp_path / "csrc" / "cpu").mkdir(parents=True)
    assert config.find_root(tmp_path / "csrc" / "cpu") == tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchproof", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_readmes_project_needs_nothing_else_to_be_checked(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"^```toml\n(.*?)^```", (DISTRIBUTION / "README.md").read_text(), re.M | re.S
    )
    write(tmp_path, text)
    for name in ("csrc", "decay", "tests"):
        (tmp_path / name).mkdir()
    for name in ("setup.py", "pyproject.toml", "tests/smoke.py"):
        (tmp_path / name).touch()
    for command in ("--write", "check", "list"):
        done = run(tmp_path, command)
        assert (done.returncode, done.stderr) == (0, "")


CHECKABLE = """
suites = [ { name = "a", paths = "tests" } ]
tiers = [ { name = "a" } ]
rows = [
  { tier="a", torch="2.13", python="3.12", binding="native", compiler="default", suite="a" },
]
[project]
name = "decay"
sources = "csrc"
kernels = "csrc"
tests = "tests"
smoke = "tests"
"""


def checkable(folder: Path) -> None:
    """A project that breaks no rule, and has no README."""
    write(folder, CHECKABLE)
    for name in ("csrc", "tests"):
        (folder / name).mkdir()


def test_a_readme_may_have_comments_of_its_own(tmp_path: Path) -> None:
    checkable(tmp_path)
    text = "# Decay\n<!-- start -->\nWhat docs/index.md includes.\n<!-- end -->\n"
    (tmp_path / "README.md").write_text(text)
    for command in ("--write", "check"):
        done = run(tmp_path, command)
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "README.md").read_text() == text


def test_a_readme_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    checkable(tmp_path)
    (tmp_path / "README.md").write_bytes(b"# D\xe9cay\n")
    done = run(tmp_path, "check")
    assert done.returncode == 2
    assert f"{tmp_path / 'README.md'}: not UTF-8 at line 1" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (("release", "check"), "decay/version.py"),
        (("conda", "--write"), "[conda]"),
        (("conda",), "recipe/recipe.yaml is not there"),
    ],
)
def test_what_a_project_lacks_is_one_line(
    tmp_path: Path, command: tuple[str, ...], missing: str
) -> None:
    write(tmp_path, 'stable = { target = "2.10", headers = "2.13" }\n' + WHOLE)
    done = run(tmp_path, *command)
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert missing in line
    assert "Errno" not in line


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("decay/_version.py", "check"),
        ("recipe/recipe.yaml", "check"),
        ("recipe/conda_build_config.yaml", "check"),
        ("CHANGELOG.md", "release check"),
        ("CHANGELOG.md", "release notes"),
        ("CITATION.cff", "release check"),
    ],
)
def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, name: str, command: str) -> None:
    shutil.copytree(DISTRIBUTION / "tests" / "decay", tmp_path, dirs_exist_ok=True)
    assert run(tmp_path, "--write").returncode == 0
    with (tmp_path / name).open("ab") as file:
        file.write(b"# D\xe9cay\n")
    done = run(tmp_path, *command.split())
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert f"{tmp_path / name}: not UTF-8 at line " in line


def test_a_copy_that_is_not_utf_8_differs(tmp_path: Path) -> None:
    checkable(tmp_path)
    write(tmp_path, f'copies = [ {{ path = "own.py", of = "errors.py" }} ]\n{CHECKABLE}')
    (tmp_path / "own.py").write_bytes(b"# D\xe9cay\n")
    assert "own.py: is not the file of torchproof that it copies" in run(tmp_path, "check").stdout


def test_a_project_without_a_package_of_its_tests_lacks_that_one_alone(tmp_path: Path) -> None:
    write(tmp_path, WHOLE.replace(', tests = "decay-tests"', ""))
    done = run(tmp_path, "conda")
    assert done.returncode == 2
    assert "[project]: conda names no package for tests: " in done.stdout


def test_a_package_of_the_recipe_that_the_project_does_not_name_is_one_line(tmp_path: Path) -> None:
    shutil.copytree(DISTRIBUTION / "tests" / "decay", tmp_path, dirs_exist_ok=True)
    matrix = tmp_path / config.FILE
    named = 'native = "decay-native"'
    matrix.write_text(matrix.read_text().replace(named, 'native = "native-decay"'))
    done = run(tmp_path, "conda", "--write")
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "recipe/recipe.yaml makes decay-native, which matrix.toml does not name" in line


def test_a_package_of_the_project_that_the_recipe_does_not_make_is_one_line(tmp_path: Path) -> None:
    shutil.copytree(DISTRIBUTION / "tests" / "decay", tmp_path, dirs_exist_ok=True)
    assert run(tmp_path, "--write").returncode == 0
    recipe = tmp_path / "recipe" / "recipe.yaml"
    recipe.write_text(recipe.read_text().partition("  - package:\n      name: decay-tests")[0])
    done = run(tmp_path, "conda")
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "recipe/recipe.yaml makes no decay-tests, which matrix.toml names: add an output" in line


def test_a_native_package_that_the_project_does_not_name_is_refused(tmp_path: Path) -> None:
    shutil.copytree(DISTRIBUTION / "tests" / "decay", tmp_path, dirs_exist_ok=True)
    assert run(tmp_path, "--write").returncode == 0
    matrix = tmp_path / config.FILE
    matrix.write_text(matrix.read_text().replace(' native = "decay-native",', ""))
    done = run(tmp_path, "conda", "--native")
    assert done.returncode == 2
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "--native: `conda` of [project] names no package `native`" in line
