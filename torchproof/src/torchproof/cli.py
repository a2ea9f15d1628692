"""`torchproof COMMAND ...`: one program before all the others."""

from torchproof.interrupts import BROKEN_PIPE  # before the imports that are slow

# isort: split
import importlib
import io
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version

from torchproof.errors import TorchproofError, explain_error


@dataclass(frozen=True)
class Command:
    """What a command does.

    Attributes:
        module: of torchproof; its main() does it.
        what: it does, in the list of commands.
        before: what main() is given before the user's own arguments.
        extra: of this distribution, which the module needs.
    """

    module: str
    what: str
    before: tuple[str, ...] = ()
    extra: str = ""

    def run(self, arguments: list[str]) -> int:
        """Run it; the exit code."""
        try:
            module = importlib.import_module(f"torchproof.{self.module}")
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            raise TorchproofError(
                f"{error.name} is not installed: pip install 'torchproof[{self.extra}]'"
            ) from None
        code: int = module.main([*self.before, *arguments])
        return code


COMMANDS = {
    "run": Command("matrix", "build, audit, load, test and time the rows of matrix.toml"),
    "list": Command("matrix", "list the rows", ("--list",)),
    "expand": Command("matrix", "the rows as JSON, for GitHub Actions", ("--list", "--json")),
    "check": Command("matrix", "check matrix.toml and what is made from it", ("--check",)),
    "report": Command("matrix", "report what earlier runs have kept", ("--report",)),
    "page": Command("report.page.check", "look at the report's page in Chromium", extra="page"),
    "audit": Command("audit.__main__", "where wheels, packages and libraries will load"),
    "grid": Command("grid.__main__", "load wheels into torches, beside the prediction"),
    "doctor": Command("doctor.__main__", "the rule that a load error breaks, and its fix"),
    "crossload": Command("grid.__main__", "the grid of the project's wheels", ("--built",)),
    "init": Command("template.__main__", "make a new extension project", extra="init"),
    "conda": Command("conda.__main__", "build and test the conda packages", extra="conda"),
    "release": Command("release.__main__", "build or check what is released", extra="release"),
    "interpreters": Command("machine.interpreters", "fetch the CPythons that rows lack"),
    "compilers": Command("rows.compilers", "install the compilers that rows name"),
    "lock": Command("machine.relock", "lock the versions and hashes that environments install"),
    "vulnerabilities": Command("machine.vulnerabilities", "check the locks for known ones"),
}


def usage() -> str:
    """Every command in a line."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {each.what}" for name, each in COMMANDS.items())
    return "\n".join(["torchproof COMMAND [--help] ...", "", *lines])


def alias_help(name: str) -> str:
    """What precedes the options of a command that is another with some of them given."""
    alias = COMMANDS[name]
    same = next(
        other for other, each in COMMANDS.items() if each.module == alias.module and not each.before
    )
    return (
        f"usage: torchproof {name} [OPTION ...]\n\n{alias.what}: the same as "
        f"`torchproof {' '.join([same, *alias.before])}`, whose help follows\n"
    )


def command(argv: list[str]) -> int:
    """Run a command; options without one are those of `run`."""
    if argv[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if argv[:1] in (["-V"], ["--version"]):
        print(f"torchproof {version('torchproof')}")
        return 0
    name, rest = (argv[0], argv[1:]) if argv and argv[0][:1] != "-" else ("run", argv)
    if name not in COMMANDS:
        print(f"torchproof: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    if COMMANDS[name].before and {"-h", "--help"} & {*rest}:
        print(alias_help(name))
    return COMMANDS[name].run(rest)


def main(argv: list[str] | None = None) -> int:
    """Run a command, which ends without a word where its reader has: `torchproof list | head`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # a shell has closed it: `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            # A log holds any bytes, and a locale may lack a character of a table: no reason to end.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = command(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (TorchproofError, OSError) as error:
        print(f"error: {explain_error(error)}", file=sys.stderr)
        return 2
    return code
