"""`torchproof audit FILE...`: audit artifacts; 1 when a rule fails, 2 on bad input."""

import argparse
import re
import sys
from dataclasses import fields, replace
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.text import Text

from torchproof import config, terminal
from torchproof.audit.architectures import images_of
from torchproof.audit.artifact import ArtifactError
from torchproof.audit.checks.system import LINUX_TAG
from torchproof.audit.findings import Refusal, Report, render, to_json
from torchproof.audit.isolated import Auditor
from torchproof.audit.policy import CPU, Ceilings, Policy, default_policy
from torchproof.audit.rules import RULES
from torchproof.audit.torches import NotTorchError, find_torch

BAD_INPUT = 2
PYTHON = re.compile(r"none|abi3|cpython-[0-9]+t?")


def _path(text: str) -> Path:
    if not text:  # Path("") is the working directory
        raise argparse.ArgumentTypeError("the name is empty")
    return Path(text)


def _version(text: str) -> str:
    if not config.is_version(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no version: write one such as 2.28")
    return text


def _series(text: str) -> str:
    return config.series(_version(text))


def _cuda(text: str) -> str:
    return text if text == CPU else _version(text)


def _platform(text: str) -> str:
    if not LINUX_TAG.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no platform of Linux: write one such as manylinux_2_28_x86_64"
        )
    return text


def _python(text: str) -> str:
    if not PYTHON.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write none, abi3 or one such as cpython-311")
    return text


def _ceilings(text: str) -> Ceilings:
    """`glibc=2.28,cxxabi=1.3.11`; a name that is left out has no ceiling."""
    known = {field.name for field in fields(Ceilings)}
    values = dict(part.partition("=")[::2] for part in text.split(",") if part)
    if not values or set(values) - known or not all(map(config.is_version, values.values())):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write NAME=VERSION,... with names out of {', '.join(sorted(known))} and "
            "versions such as 2.28"
        )
    return Ceilings(**values)


def _architectures(text: str) -> tuple[str, ...]:
    entries = tuple(part for part in text.replace(";", ",").split(",") if part)
    try:
        images_of(entries)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return entries


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchproof audit",
        description=__doc__,
        epilog="Exit codes: 0 every file keeps every rule; 1 one breaks a rule, or has a library"
        " that cannot be read; 2 bad input, a file that cannot be audited among it.",
    )
    parser.add_argument(
        "files", nargs="*", type=_path, metavar="FILE", help=".so, .whl, .conda or folder"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    parser.add_argument(
        "--against",
        nargs="+",
        type=_path,
        default=[],
        metavar="TORCH_DIR",
        help="installed torches (the package, its site-packages or its environment)",
    )
    parser.add_argument("--binding", choices=("stable", "native"), help="the declared binding")
    parser.add_argument(
        "--target", type=_series, help="the lowest torch a stable binary must load on: 2.10"
    )
    parser.add_argument("--torch", type=_series, help="the torch it was compiled against: 2.13")
    parser.add_argument("--python", type=_python, help="none, abi3 or cpython-311")
    parser.add_argument("--cuda", type=_cuda, help="the CUDA release it is for, 13.0, or cpu")
    parser.add_argument(
        "--cuda-architectures", type=_architectures, metavar="LIST", help="8.0,9.0a,9.0+PTX"
    )
    parser.add_argument(
        "--ceilings", type=_ceilings, metavar="LIST", help="glibc=2.28,glibcxx=3.4.24,cxxabi=1.3.11"
    )
    parser.add_argument("--platform", type=_platform, help="manylinux_2_28_x86_64")
    parser.add_argument("--debug", action="store_true", help="it is a debug build")
    parser.add_argument("--needed", nargs="+", metavar="PATTERN", help="libraries it may also link")
    parser.add_argument(
        "--exports", nargs="+", metavar="PATTERN", help="symbols it may also export"
    )
    return parser


def _policy(options: argparse.Namespace) -> Policy:
    given = {field.name: getattr(options, field.name, None) for field in fields(Policy)}
    declared = {name: value for name, value in given.items() if value not in (None, False)}
    default = default_policy()
    declared.update(
        (name, (*getattr(default, name), *declared.get(name, ()))) for name in ("needed", "exports")
    )
    return replace(default, **declared)


def _list_rules(console: Console) -> None:
    for rule in RULES:
        console.print(Text.assemble((rule.id, "bold"), f": {rule.why} {rule.fix}"))


def main(arguments: list[str] | None = None) -> int:
    """Audit what the command line names."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # A name in a file may hold what the terminal's encoding does not.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = terminal.console(soft_wrap=False)
    if options.rules:
        _list_rules(console)
        return 0
    if not options.files:
        parser.error(
            "name at least one FILE to audit, before an option of several values or after --"
        )
    try:
        for place in options.against:
            find_torch(place)
    except NotTorchError as error:
        print(f"audit: {error}", file=sys.stderr)
        return BAD_INPUT
    return _audit(options, console)


def _audit(options: argparse.Namespace, console: Console) -> int:
    """Report on each file; one that cannot be audited does not hide the others."""
    results: list[Report | Refusal] = []
    with Auditor(_policy(options), options.against) as auditor:
        for file in options.files:
            try:
                results.append(auditor.audit(file))
            except ArtifactError as error:
                results.append(Refusal(file.name, str(error)))
    for result in results:
        if isinstance(result, Refusal):
            print(f"audit: {result.error}", file=sys.stderr)
        elif not options.json:
            render(result, console)
    if options.json:
        print(to_json(results))
    if any(isinstance(result, Refusal) for result in results):
        return BAD_INPUT
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
