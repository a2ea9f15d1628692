"""`torchproof doctor [FILE or MESSAGE]`: what is broken here, by which rule, and what fixes it."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from rich.console import Console

from torchproof import terminal
from torchproof.audit.artifact import LIBRARY
from torchproof.audit.findings import COLOURS
from torchproof.audit.text import shorten
from torchproof.audit.torches import Torch
from torchproof.doctor.diagnose import Diagnosis, diagnose
from torchproof.doctor.here import Here, look
from torchproof.doctor.libraries import FAILS, Library, installed, of_file
from torchproof.errors import TorchproofError

BAD_INPUT = 2
ARTIFACTS = (".whl", ".conda", ".tar.bz2")
UNKNOWN = (
    "no rule that torchproof knows explains this message; send all of it, from its first line on,"
    " with the output of `torchproof doctor --json`, to those who make the package"
)


class UnusableError(TorchproofError):
    """What the command line names is no file, message or environment."""


@dataclass(frozen=True)
class Answer:
    """What is printed, and as JSON returned; `ok` is exit code 0."""

    ok: bool
    here: Here
    diagnoses: tuple[Diagnosis, ...] = ()
    libraries: tuple[Library, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return asdict(self)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="torchproof doctor",
        description=__doc__,
        epilog="Exit codes: 0 a message is explained, or everything loads; 1 it is not, or"
        " something does not load; 2 bad input.",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="FILE or MESSAGE",
        help="a library, wheel or package, or an error's text, - for standard input; without one,"
        " everything installed that links against torch",
    )
    parser.add_argument(
        "--environment",
        type=Path,
        metavar="DIR",
        help="an environment, its site-packages or its torch (default: this Python's own)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    options = arguments(argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        answer = _answer(options)
    except TorchproofError as error:
        print(f"doctor: {error}", file=sys.stderr)
        return BAD_INPUT
    if options.json:
        print(json.dumps(answer.to_dict(), indent=1, default=str))
    else:
        _render(answer, terminal.console(soft_wrap=True), everything=not options.what)
    return 0 if answer.ok else 1


def _answer(options: argparse.Namespace) -> Answer:
    what, environment = " ".join(options.what), options.environment
    if not options.what:
        return _of_environment(look(environment))
    if what == "-":
        return _of_text(sys.stdin.read(), look(environment))
    path = Path(what)
    if what and _exists(path):
        return _of_file(path, look(environment), environment)
    return _of_text(what, look(environment))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a message is too long for a name, or holds a null
        return False


def _of_text(text: str, here: Here) -> Answer:
    """Explain a message."""
    if not text.strip():
        raise UnusableError(
            "the message is empty; give the error's text, the more of it the better"
        )
    found = diagnose(text, here)
    if found:
        return Answer(ok=True, here=here, diagnoses=(found,))
    if _is_path(text.strip()):
        raise UnusableError(
            f"{shorten(text)} does not exist; name a library, wheel or package that does, or give"
            " an error's text"
        )
    return Answer(ok=False, here=here, error=UNKNOWN)


def _is_path(text: str) -> bool:
    """Whether a text that is no known message was meant as a file's name."""
    if "\n" in text:
        return False
    if " " in text:
        return text.endswith((".so", *ARTIFACTS))
    return "/" in text or text.endswith(ARTIFACTS) or LIBRARY.fullmatch(text) is not None


def _torch(here: Here) -> Torch:
    if here.torch is None:
        raise UnusableError(
            "no torch is installed for this Python: `pip install torch`, or name an environment"
            " that has one with --environment"
        )
    return here.torch


def _of_file(path: Path, here: Here, environment: Path | None) -> Answer:
    libraries = tuple(of_file(path, _torch(here), here))
    unfit = None if environment else _unfit_wheel(path, here)
    fails = any(library.outcome == FAILS for library in libraries)
    return Answer(
        ok=not fails and unfit is None,
        here=here,
        diagnoses=(unfit,) if unfit else (),
        libraries=libraries,
    )


def _unfit_wheel(path: Path, here: Here) -> Diagnosis | None:
    """What an installer reports of a wheel that is for another Python or system."""
    try:
        tags = parse_wheel_filename(path.name)[3]
    except InvalidWheelFilename:
        return None
    if not tags.isdisjoint(sys_tags()):
        return None
    return diagnose(f"{path.name} is not a supported wheel on this platform.", here)


def _of_environment(here: Here) -> Answer:
    libraries = tuple(installed(_torch(here), here))
    ok = not any(library.outcome == FAILS for library in libraries)
    return Answer(ok=ok, here=here, libraries=libraries)


def _render(answer: Answer, console: Console, *, everything: bool) -> None:
    if everything:
        _render_here(answer.here, console)
    for diagnosis in answer.diagnoses:
        _render_diagnosis(diagnosis, console)
    for library in answer.libraries:
        style = COLOURS.get(library.outcome, "dim")
        words = (library.package, library.name, library.outcome)
        console.print(": ".join(filter(None, words)), style=style)
        console.print(f"  {library.reason}")
        if library.diagnosis:
            _render_diagnosis(library.diagnosis, console)
        for broken in () if everything else library.broken:
            console.print(f"  also {broken.rule}: {broken.found}. {broken.fix}")
    if answer.error:
        console.print(answer.error)
    elif everything:
        _render_count(answer.libraries, console)


def _render_here(here: Here, console: Console) -> None:
    abi = {True: "1", False: "0", None: "unknown"}[here.cxx11_abi]
    system = here.system
    for name, value in (
        ("torch", f"{here.torch_shown}, _GLIBCXX_USE_CXX11_ABI={abi}"),
        ("Python", here.python),
        ("libc", f"GLIBC {system.glibc or 'unknown'}"),
        (
            "libstdc++",
            f"GLIBCXX {system.glibcxx or 'unknown'}, CXXABI {system.cxxabi or 'unknown'}",
        ),
        ("driver", here.driver or "none"),
    ):
        console.print(f"{name:<10} {value}")


def _render_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    console.print(f"{diagnosis.rule}: {diagnosis.cause}", style="bold")
    for fix in diagnosis.fixes:
        console.print(f"  {fix.command}", style="cyan")
        console.print(f"    {fix.note}", style="dim")


def _render_count(libraries: Sequence[Library], console: Console) -> None:
    count = sum(bool(library.name) or library.outcome == FAILS for library in libraries)
    fails = sum(library.outcome == FAILS for library in libraries)
    console.print(f"{count} libraries link against torch, {fails} of them will not load")


if __name__ == "__main__":
    sys.exit(main())
