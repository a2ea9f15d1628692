"""Make a project from the template: copier renders it, then its matrix writes its made files."""

import builtins
import keyword
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import copier
import yaml
from copier.errors import CopierAnswersInterrupt, CopierError
from plumbum import ProcessExecutionError

from torchproof.errors import TorchproofError
from torchproof.template.origin import git_user, of_installed

TEMPLATE = Path(__file__).parent
ANSWERS = ".copier-answers.yml"
# A package of such a name cannot be imported, or hides what the project itself calls or imports.
PYTHON_NAMES = sorted({*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names})


class CannotCreateError(TorchproofError):
    """Why no project was made."""


class InterruptedError(TorchproofError):  # noqa: A001 - the builtin is of system calls
    """The user ended the questions, or what came after."""


@dataclass(frozen=True)
class Request:
    """What is to be made.

    Attributes:
        folder: absent or empty.
        answers: those that were given; the others are asked for, or have their default.
        ask: whether somebody is there to answer.
        template: a git repository or a folder, as copier takes it; None is torchproof's own.
        ref: the repository's tag, branch or commit; None is the newest tag.
    """

    folder: Path
    answers: Mapping[str, Any] = field(default_factory=dict)
    ask: bool = False
    template: str | None = None
    ref: str | None = None


def create(request: Request) -> bool:
    """Make the project; whether `copier update` can bring it later changes of the template."""
    folder = request.folder
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise CannotCreateError(f"{folder} is in use: name a folder that is empty or absent")
    if request.ref and request.template is None:
        raise CannotCreateError(f"--ref {request.ref} is of a repository: name it with --template")
    with _removed_when_interrupted(folder):
        _render(request)
        if request.template is None:
            _record_origin(folder / ANSWERS)
        _write_made_files(folder)
    return "_commit" in yaml.safe_load((folder / ANSWERS).read_text(encoding="utf-8"))


@contextmanager
def _removed_when_interrupted(folder: Path) -> Iterator[None]:
    """An interrupted project would be half of one, and its folder in use."""
    there = folder.exists()
    try:
        yield
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            folder.mkdir(exist_ok=True)
        raise InterruptedError("interrupted: nothing was made") from None


def default_name(folder: Path) -> str:
    """A folder's name as that of a Python package."""
    return re.sub(r"\W+", "_", folder.resolve().name.lower()).strip("_")


def _render(request: Request) -> None:
    author = git_user()
    defaults = {
        "name": default_name(request.folder),
        "torchproof": of_installed().requirement,
        **({"author": author} if author else {}),
    }
    try:
        copier.run_copy(
            request.template or str(TEMPLATE),
            request.folder,
            data={**request.answers, "python_names": PYTHON_NAMES},
            user_defaults=defaults,
            defaults=not request.ask,
            vcs_ref=request.ref,
            quiet=True,
        )
    except CopierAnswersInterrupt:
        raise KeyboardInterrupt from None
    except ProcessExecutionError as error:
        reason = str(error.stderr).strip().splitlines()[:1]
        raise CannotCreateError(f"the template {request.template}: {reason}") from None
    except (CopierError, ValueError) as error:
        where = f"the template {request.template}: " if request.template else ""
        raise CannotCreateError(where + " ".join(str(error).split())) from None


def _record_origin(path: Path) -> None:
    """Name the repository in place of the folder in site-packages, which has no history."""
    origin = of_installed()
    comment, _, text = path.read_text(encoding="utf-8").partition("\n")
    answers = yaml.safe_load(text)
    del answers["_src_path"]
    if origin.repository and origin.commit:
        answers |= {"_src_path": origin.repository, "_commit": origin.commit}
    path.write_text(f"{comment}\n{yaml.safe_dump(answers)}", encoding="utf-8")


def _write_made_files(folder: Path) -> None:
    """What matrix.toml decides: the README's table, the recipe's variants."""
    done = subprocess.run(
        [sys.executable, "-m", "torchproof", "run", "--write"],
        cwd=folder,
        # The project may have the name of a package that torchproof imports.
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        raise CannotCreateError(f"{folder} was made, but not what its matrix.toml makes: {reason}")
