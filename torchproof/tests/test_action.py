"""action.yml: its steps, run by a shell as GitHub's runner runs them, on a wheel that was built."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchproof.template import __main__ as init

ACTION = Path(__file__).parents[1] / "action.yml"
DOCUMENT: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
INSTALL, CHECK = DOCUMENT["runs"]["steps"]
# What GitHub's runner starts for `shell: bash`.
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


@dataclass(frozen=True)
class Runner:
    """A runner's folders; `temp` keeps what the first step has installed."""

    temp: Path
    home: Path

    def run(self, step: dict[str, Any], **inputs: str) -> tuple[int, str]:
        """Run a step where the wheels are; its exit code and output."""
        defaults = {name: value["default"] for name, value in DOCUMENT["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()}
        values["github.action_path"] = str(ACTION.parent)
        env = {
            name: re.sub(r"\$\{\{ (\S+) \}\}", lambda found: values[found[1]], value)
            for name, value in step["env"].items()
        }
        files = {
            "RUNNER_TEMP": self.temp,
            "GITHUB_OUTPUT": self.home / "output",
            "GITHUB_STEP_SUMMARY": self.home / "summary",
        }
        done = subprocess.run(
            [*BASH, step["run"]],
            cwd=self.home,
            env={**os.environ, **env, **{name: str(path) for name, path in files.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def report(self) -> str:
        """What the action's output names."""
        (line,) = (self.home / "output").read_text().splitlines()
        return Path(line.removeprefix("report=")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A runner with the wheel of a new project in dist/, after the first step."""
    home = tmp_path_factory.mktemp("home")
    assert init.main([str(home / "decay"), "--defaults"]) == 0
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", home / "dist"]
    done = subprocess.run([*build, home / "decay"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = Runner(tmp_path_factory.mktemp("temp"), home)
    code, output = found.run(INSTALL)
    assert code == 0, output
    return found


@pytest.fixture(autouse=True)
def fresh(runner: Runner) -> None:
    for name in ("output", "summary"):
        (runner.home / name).unlink(missing_ok=True)


def test_a_wheel_is_audited_as_declared(runner: Runner) -> None:
    code, output = runner.run(CHECK, arguments="--binding stable --target 2.10 --python none")
    assert code == 0, output
    report = runner.report()
    assert "decay/libdecay.so" in report
    assert report in output
    assert report in (runner.home / "summary").read_text(encoding="utf-8")


def test_a_broken_rule_fails_the_step(runner: Runner) -> None:
    code, _ = runner.run(CHECK, arguments="--ceilings glibc=2.1")
    assert code == 1
    assert "at most 2.1" in runner.report()


@pytest.mark.parametrize("argument", ["'2.13 is no torch'", '"2.13 is \\"no\\" torch"'])
def test_arguments_are_quoted_as_in_a_shell(runner: Runner, argument: str) -> None:
    code, output = runner.run(CHECK, command="grid", arguments=f"--torch {argument}")
    assert code == 2
    assert shlex.split(argument)[0] in output


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"wheels": "no/*.whl"}, "::error::torchproof: no file matches 'no/*.whl'"),
        ({"command": "conda"}, "::error::torchproof: the command is audit or grid, not 'conda'"),
        ({"arguments": '--smoke "import mine'}, 'quoted as in a shell: --smoke "import mine'),
        ({"wheels": "$(touch mark)"}, "does not exist; name a .so, a wheel"),
    ],
)
def test_bad_input_is_one_sentence(runner: Runner, inputs: dict[str, str], words: str) -> None:
    code, output = runner.run(CHECK, **inputs)
    assert code == 2
    assert words in output
    assert not (runner.home / "mark").exists()


def test_no_expression_is_in_a_script() -> None:
    assert all("${{" not in step["run"] for step in (INSTALL, CHECK))
