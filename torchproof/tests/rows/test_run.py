"""Whatever happens to a row, or to the run, what is proven stays and the rest is told."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torchproof.config import ROOT
from torchproof.rows import results

DRIVER = Path(__file__).parents[1] / "fakes" / "run.py"
STABLE = "torch2.13.0-py3.11-stable-g++-11-cpu"
NATIVE = "torch2.13.0-py3.11-native-g++-11-cpu"
ALL = sorted(
    f"torch2.13.0-py3.11-{binding}-g++-{major}-cpu"
    for binding in ("stable", "native")
    for major in (11, 12)
)


# A shell makes its jobs in the background deaf to SIGINT, and they hand that down.
HEAR_INTERRUPTS = ("env", "--default-signal=INT")


def start(
    folder: Path,
    *,
    jobs: int = 2,
    resume: bool = False,
    mode: str = "",
    project: Path = ROOT,
    **happenings: Any,
) -> Any:
    modes = [*(["resume"] if resume else []), *mode.split()]
    return subprocess.Popen(
        [*HEAR_INTERRUPTS, sys.executable, str(DRIVER), str(folder), str(jobs), *modes],
        env={**os.environ, "STANDIN": json.dumps(happenings)},
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(folder: Path, **options: Any) -> tuple[int, str]:
    process = start(folder, **options)
    told, _ = process.communicate(timeout=300)
    return process.returncode, told


def start_and_hang(folder: Path) -> Any:
    """A run that is at the tests of a row, which do not end."""
    process = start(folder, jobs=1, tests={NATIVE: "hang"})
    while not (folder / "logs" / NATIVE / "tests.log").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (folder / "rows").glob("*.json")]
    return {row["id"]: row for row in found}


def test_every_row_passes_and_is_reported(tmp_path: Path) -> None:
    code, told = finish(tmp_path, mode="report")
    assert code == 0, told
    document = json.loads((tmp_path / "report.json").read_text())
    assert sorted(row["id"] for row in document["rows"]) == ALL
    for row in document["rows"]:
        assert row["status"] == "passed"
        assert row["tests"]["passed"] == 2
        assert row["worst"]["ulp"] == 1.5
        assert row["speedup"] == pytest.approx(2.0)
        assert set(row["logs"]) >= {"build", "tests", "speed"}
    page = (tmp_path / "index.html").read_text()
    assert all(f'id="{name}"' in page for name in ALL)


def test_an_emulated_row_names_the_emulator_and_is_not_timed(tmp_path: Path) -> None:
    code, output = finish(tmp_path, mode="emulated report")
    assert code == 0, output
    document = json.loads((tmp_path / "report.json").read_text())
    assert {row["outcome"] for row in document["rows"]} == {"passed, emulated by qemu-user 1.0"}
    assert {row["emulator"] for row in document["rows"]} == {"qemu-user 1.0"}
    assert not any(row["speed"] for row in document["rows"])
    page = (tmp_path / "index.html").read_text()
    assert page.count("passed, emulated by qemu-user 1.0") >= len(ALL)
    # Its rows are not those of a real processor, and the other way round.
    finish(tmp_path, resume=True)
    found = rows(tmp_path).values()
    assert all(row["speed"] and not row["emulator"] for row in found)


def test_rows_that_share_a_recipe_share_one_wheel(tmp_path: Path) -> None:
    finish(tmp_path)
    hashes = {name: row["artifact"]["sha256"] for name, row in rows(tmp_path).items()}
    assert len(set(hashes.values())) == len(ALL)
    finish(tmp_path)
    assert {name: row["artifact"]["sha256"] for name, row in rows(tmp_path).items()} == hashes


def test_a_row_on_a_newer_python_is_built_on_one_with_the_torch_to_build_on(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "build"
    shutil.copytree(ROOT, project)
    change_matrix(project, "[project]\n", "[project]\nany_python = true\n")
    code, told = finish(folder, mode="newer", project=project)
    assert code == 0, told
    (row,) = rows(folder).values()
    assert (row["python"], row["status"]) == ("3.15", "passed")


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        ({"build": {"native-torch2.13-g++-11": "fail"}}, "build: exit status 1; see build.log"),
        ({"load": {NATIVE: "abort"}}, "load: import decay: killed by SIGABRT"),
        ({"tests": {NATIVE: "fail"}}, "tests: 1 failed, first t::two: no"),
        ({"tests": {NATIVE: "abort"}}, "tests: killed by SIGABRT"),
        ({"speed": {NATIVE: "fail"}}, "speed: exit status 1; see speed.log"),
        ({"speed": {NATIVE: "nothing"}}, "speed: no benchmark was measured; see speed.log"),
        ({"speed": {NATIVE: "garble"}}, "speed: b::one: extra_info has no 'op'; expected op, case"),
    ],
)
def test_a_broken_row_is_told_and_the_others_pass(
    tmp_path: Path, happening: dict[str, Any], reason: str
) -> None:
    code, _ = finish(tmp_path, **happening)
    assert code == 1
    found = rows(tmp_path)
    assert found[NATIVE]["status"] == "failed"
    assert found[NATIVE]["reason"].startswith(reason)
    assert {row["status"] for name, row in found.items() if name != NATIVE} == {"passed"}


def test_a_run_leaves_nothing_that_git_would_add(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT, project)
    git = ("git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Start"]):
        subprocess.run([*git, *command], check=True)
    status, output = finish(project / "build" / "matrix", project=project)
    assert status == 0, output
    assert subprocess.check_output([*git, "status", "--porcelain"], text=True) == ""


def load(folder: Path, package: str) -> dict[str, Any]:
    """The row of a project whose package is this code, imported by a real Python."""
    project = folder / "project"
    shutil.copytree(ROOT, project)
    (project / "decay" / "__init__.py").write_text(package)
    matrix = project / "matrix.toml"
    lines = matrix.read_text(encoding="utf-8").splitlines(keepends=True)
    matrix.write_text("".join(line for line in lines if "instruction_set" not in line))
    finish(folder, project=project, load={NATIVE: "real"})
    return rows(folder)[NATIVE]


@pytest.mark.parametrize(
    "package",
    ["print('{')", "print('no end of line', end='')", r"import os; os.write(1, b'gr\xfc\xdf')"],
)
def test_a_package_may_print_as_it_is_imported(tmp_path: Path, package: str) -> None:
    found = load(tmp_path, package)
    assert found["status"] == "passed", found["reason"]
    assert found["processor"]["name"]
    assert set(found["in_use"]) >= {"ATen", "oneDNN"}


def test_an_import_that_ends_python_is_told(tmp_path: Path) -> None:
    found = load(tmp_path, "import os; os._exit(0)")
    assert found["status"] == "failed"
    assert found["reason"].startswith("load: import decay: ended Python, exit status 0")


def project_with_test(folder: Path, code: str) -> Path:
    """A project with a test that a row of it really runs, beside the package's sources."""
    project = folder / "project"
    shutil.copytree(ROOT, project)
    (project / "tests" / "test_import.py").write_text(f"{code}\n\ndef test_it(): pass\n")
    return project


@pytest.mark.parametrize("code", ["import decay", "import decay, decay.absent"])
def test_a_row_whose_tests_import_the_sources_fails(tmp_path: Path, code: str) -> None:
    project = project_with_test(tmp_path, code)
    # pytest puts the folder above it on sys.path, where the sources are.
    (project / "tests" / "__init__.py").touch()
    status, output = finish(tmp_path, project=project, tests={NATIVE: "real"})
    assert status == 1, output
    reason = rows(tmp_path)[NATIVE]["reason"]
    installed = tmp_path / "work" / NATIVE / "site" / "decay"
    sources = project / "decay" / "__init__.py"
    assert f"imported from {sources}, not from the installed wheel in {installed}" in reason
    assert "--import-mode=importlib" in reason


def test_a_row_whose_pytest_is_configured_to_import_the_sources_fails(tmp_path: Path) -> None:
    project = project_with_test(tmp_path, "import decay")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    finish(tmp_path, project=project, tests={NATIVE: "real"})
    reason = rows(tmp_path)[NATIVE]["reason"]
    assert "--override-ini=pythonpath=" in reason
    # As a suite's `arguments` would say it.
    (project / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\naddopts = --override-ini=pythonpath= --import-mode=importlib\n"
    )
    finish(tmp_path, project=project, tests={NATIVE: "real"})
    assert rows(tmp_path)[NATIVE]["status"] == "passed"


@pytest.mark.parametrize("code", ["import decay", "import decay; assert False", ""])
def test_a_row_whose_tests_import_the_wheel_does_not_name_the_sources(
    tmp_path: Path, code: str
) -> None:
    project = project_with_test(tmp_path, code)
    finish(tmp_path, project=project, tests={NATIVE: "real"})
    found = rows(tmp_path)[NATIVE]
    assert "imported from" not in found["reason"]
    assert found["status"] == ("failed" if "False" in code else "passed"), found["reason"]


@pytest.mark.parametrize("mode", ["", "alone"])
def test_a_test_that_ends_its_process_is_named(tmp_path: Path, mode: str) -> None:
    project = project_with_test(tmp_path, "def test_deadly():\n    import os; os.abort()")
    finish(tmp_path, project=project, mode=mode, tests={NATIVE: "real"})
    reason = rows(tmp_path)[NATIVE]["reason"]
    assert "tests: a test ended its process with SIGABRT" in reason
    assert "test_deadly" in reason
    assert "Extension modules" not in reason


def test_what_keeps_a_test_file_from_being_collected_is_named(tmp_path: Path) -> None:
    project = project_with_test(tmp_path, "import absent")
    finish(tmp_path, project=project, tests={NATIVE: "real"})
    assert rows(tmp_path)[NATIVE]["reason"].endswith(
        "collection failure: ModuleNotFoundError: No module named 'absent'"
    )


@pytest.mark.parametrize(
    "variable",
    ["PYTEST_ADDOPTS=-k it", "PYTEST_PLUGINS=absent", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"],
)
def test_a_row_runs_its_whole_suite_whatever_the_shell_tells_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    project = project_with_test(tmp_path, "def test_another(): pass")
    monkeypatch.setenv(*variable.split("=", 1))
    finish(tmp_path, project=project, tests={NATIVE: "real"})
    found = rows(tmp_path)[NATIVE]
    assert found["status"] == "passed", found["reason"]
    assert found["tests"]["passed"] == 2


CONFIGURED = """
from pathlib import Path

def test_configuration(pytestconfig):
    assert pytestconfig.rootpath == Path(__file__).parents[1]
    assert pytestconfig.getini("usefixtures") == FIXTURES
"""


@pytest.mark.parametrize(
    ("file", "text", "has_pyproject"),
    [
        ("", "", False),
        ("setup.cfg", "[metadata]\nname = decay\n[tool:pytest]\nusefixtures = tmp_path\n", False),
        ("setup.cfg", "[metadata]\nname = decay\n[tool:pytest]\nusefixtures = tmp_path\n", True),
        ("tox.ini", "[tox]\n[pytest]\nusefixtures = tmp_path\n", False),
        ("pytest.ini", "[pytest]\nusefixtures = tmp_path\n", True),
        ("pyproject.toml", "[ tool ]\npytest.ini_options.usefixtures = ['tmp_path']\n", True),
    ],
    ids=["none", "setup.cfg", "setup.cfg beside pyproject.toml", "tox.ini", "pytest.ini", "dotted"],
)
def test_a_row_takes_the_projects_own_configuration_of_pytest(
    tmp_path: Path, file: str, text: str, has_pyproject: bool
) -> None:
    fixtures = ["tmp_path"] if file else []
    project = project_with_test(tmp_path, CONFIGURED.replace("FIXTURES", repr(fixtures)))
    (tmp_path / "pytest.ini").write_text("[pytest]\nusefixtures = another_projects\n")
    (tmp_path / "conftest.py").write_text("raise ImportError")
    if file != "tox.ini":
        (project / "tox.ini").write_text("[tox]  # a [pytest] is elsewhere\n")
    if not has_pyproject:
        (project / "pyproject.toml").unlink()
    if file:
        (project / file).write_text(text)
    finish(tmp_path / "build", project=project, tests={NATIVE: "real"})
    found = rows(tmp_path / "build")[NATIVE]
    assert found["status"] == "passed", found["reason"]


def test_a_row_is_held_to_its_level_and_keeps_what_each_library_used(tmp_path: Path) -> None:
    code, told = finish(tmp_path, mode="levels report")
    assert code == 0, told
    found = rows(tmp_path)
    held, free = found[f"{STABLE}-avx2"], found[STABLE]
    assert (held["level"], held["in_use"]["ATen"]) == ("avx2", "avx2")
    assert (free["level"], free["in_use"]["ATen"]) == ("host", "avx512")
    assert held["artifact"]["sha256"] == free["artifact"]["sha256"]
    assert {row["processor"]["title"] for row in found.values()} == {"AMD Zen 4"}
    (processor,) = json.loads((tmp_path / "report.json").read_text())["processors"]
    assert processor == free["processor"]


def test_a_library_that_is_not_held_to_the_level_fails_the_row(tmp_path: Path) -> None:
    code, _ = finish(tmp_path, mode="levels", load={f"{STABLE}-avx2": "escape"})
    assert code == 1
    reason = rows(tmp_path)[f"{STABLE}-avx2"]["reason"]
    assert reason == "load: is not held to the level avx2: ATen uses avx512"


def test_a_run_killed_at_once_keeps_what_is_proven(tmp_path: Path) -> None:
    process = start_and_hang(tmp_path)
    process.kill()
    process.communicate(timeout=100)
    before = rows(tmp_path)
    assert STABLE in before
    assert NATIVE not in before
    code, _ = finish(tmp_path, resume=True)
    assert code == 0
    assert sorted(rows(tmp_path)) == ALL


def test_wheels_built_on_one_machine_are_tested_on_another(tmp_path: Path) -> None:
    builds, tests = tmp_path / "builds", tmp_path / "tests"
    code, told = finish(builds, mode="build")
    assert code == 0, told
    assert {row["reason"] for row in rows(builds).values()} == {"only built"}
    tests.mkdir()
    (builds / "artifacts").rename(tests / "artifacts")
    code, told = finish(tests, mode="prebuilt")
    assert code == 0, told
    hashes = {name: row["artifact"]["sha256"] for name, row in rows(builds).items()}
    assert {name: row["artifact"]["sha256"] for name, row in rows(tests).items()} == hashes


def test_a_row_told_to_build_nothing_fails_without_its_wheel(tmp_path: Path) -> None:
    code, _ = finish(tmp_path, mode="prebuilt")
    assert code == 1
    for row in rows(tmp_path).values():
        assert row["reason"].startswith("build: there is no wheel in")
        assert row["reason"].endswith("make it with `torchproof run --build`")
    assert not (tmp_path / "artifacts").exists()


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = start_and_hang(tmp_path)
    code, told = finish(tmp_path)
    assert code == 2
    assert f"another run, process {first.pid}, is at work in" in told
    first.kill()
    first.communicate(timeout=100)
    code, _ = finish(tmp_path, resume=True)  # a process that is dead holds nothing
    assert code == 0


def test_an_interrupted_run_stops_its_children(tmp_path: Path) -> None:
    process = start_and_hang(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    assert not running(str(tmp_path))
    assert STABLE in rows(tmp_path)


def test_resume_runs_only_what_is_missing_or_failed(tmp_path: Path) -> None:
    finish(tmp_path, tests={NATIVE: "fail"})
    first = rows(tmp_path)
    code, told = finish(tmp_path, resume=True)
    assert code == 0
    assert "3 rows proven before, kept" in told
    second = rows(tmp_path)
    assert second[NATIVE]["status"] == "passed"
    assert {n: r for n, r in second.items() if n != NATIVE} == {
        n: r for n, r in first.items() if n != NATIVE
    }


def test_a_full_disk_costs_nothing_that_was_proven(tmp_path: Path) -> None:
    finish(tmp_path, tests={NATIVE: "fail"})
    before = rows(tmp_path)
    # No file may grow beyond a few bytes, as on a disk that is full.
    driver = [sys.executable, str(DRIVER), str(tmp_path), "2", "resume"]
    full = subprocess.run(
        ["prlimit", "--fsize=64", *driver], capture_output=True, text=True, check=False
    )
    assert full.returncode == 2
    assert "File too large" in full.stdout
    after = rows(tmp_path)
    assert {n: r for n, r in after.items() if n != NATIVE} == {
        n: r for n, r in before.items() if n != NATIVE
    }
    code, _ = finish(tmp_path, resume=True)
    assert code == 0
    assert {row["status"] for row in rows(tmp_path).values()} == {"passed"}


def test_resume_runs_a_row_whose_result_is_of_other_sources(tmp_path: Path) -> None:
    finish(tmp_path)
    known = results.read(tmp_path / "rows", NATIVE)
    assert known is not None
    results.write(tmp_path / "rows", dataclasses.replace(known, key="another source"))
    _, told = finish(tmp_path, resume=True)
    assert "3 rows proven before, kept" in told


VARIABLES = 'DECAY_BINDING = "stable"'


def change_matrix(project: Path, old: str, new: str) -> None:
    """Change the text of a project's matrix.toml."""
    path = project / "matrix.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def proven(tmp_path: Path) -> tuple[Path, Path]:
    """A project, and the folder of a run in which all its rows have passed."""
    project, folder = tmp_path / "project", tmp_path / "build"
    shutil.copytree(ROOT, project)
    finish(folder, project=project)
    return project, folder


def kept_by_resume(project: Path, folder: Path, mode: str = "") -> list[str]:
    """The rows that are not run again."""
    before = rows(folder)
    code, output = finish(folder, project=project, resume=True, mode=mode)
    assert code == 0, output
    return sorted(name for name, row in rows(folder).items() if row == before[name])


def test_resume_builds_again_what_is_built_with_other_variables(
    proven: tuple[Path, Path],
) -> None:
    project, folder = proven
    wheels = {name: row["artifact"]["sha256"] for name, row in rows(folder).items()}
    change_matrix(project, VARIABLES, f'{VARIABLES}, CXXFLAGS = "-O1"')
    assert kept_by_resume(project, folder) == [name for name in ALL if "native" in name]
    for name, row in rows(folder).items():
        assert (row["artifact"]["sha256"] == wheels[name]) == ("native" in name)


EXPORTS = '[audit]\nexports = ["*"]\n\n[project]'


def test_resume_runs_what_another_matrix_may_decide_otherwise(proven: tuple[Path, Path]) -> None:
    project, folder = proven
    for old, new in (
        ("[project]", EXPORTS),
        (EXPORTS, "[project]"),
        ("[project]", '[audit]\ncxx17 = { gcc = "9", clang = "9" }\n\n[project]'),
        ("groups =", 'requires = ["numba"]\ngroups ='),
        ('groups = ["build", "test"]', 'groups = ["build"]'),
        ("cpu_capability()", "capability()"),
        ('benchmarks = ["benchmarks"]', 'benchmarks = ["tests"]'),
    ):
        change_matrix(project, old, new)
        assert kept_by_resume(project, folder) == [], new
    assert kept_by_resume(project, folder) == ALL


def test_resume_keeps_what_the_matrix_decides_as_before(proven: tuple[Path, Path]) -> None:
    project, folder = proven
    change_matrix(project, 'campaigns = ["faults", "mutants"]', "campaigns = []")
    change_matrix(project, "# A made-up project", "\n# A made-up project")
    assert kept_by_resume(project, folder) == ALL
    # Only the stable wheel is compiled against it.
    natives = [name for name in ALL if "native" in name]
    assert kept_by_resume(project, folder, "headers") == natives


def test_resume_runs_what_another_file_may_decide_otherwise(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "build"
    shutil.copytree(ROOT, project)
    # A wheel of this project is made without pyproject.toml.
    change_matrix(project, '"decay", "pyproject.toml"]', '"decay"]\nlocks = "locks"')
    (project / "locks").mkdir()
    finish(folder, project=project)
    for file, kept in (
        ("benchmarks/bench_decay.py", []),
        ("pyproject.toml", []),
        ("setup.cfg", []),
        ("conftest.py", []),
        ("locks/common.txt", []),
        ("locks/torch-2.13.0.txt", []),
        ("locks/torch-2.14.0.txt", ALL),
        ("README.md", ALL),
    ):
        (project / file).write_text("# changed\n", encoding="utf-8")
        assert kept_by_resume(project, folder) == kept, file


def running(part: str) -> list[str]:
    """The commands still running whose working directory lies below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if part in str((process / "cwd").readlink()):
                found.append((process / "cmdline").read_text())
        except OSError:  # it ended meanwhile
            continue
    return found
