"""`torchproof COMMAND ...`: one program before all the others."""

from torchproof.interrupts import INTERRUPTED  # noqa: F401 - before what is slow

# isort: split
import importlib
import os
import signal
import sys

from torchproof.errors import TorchproofError, explain_error

RUN = "torchproof.matrix"
# As a shell reports a program that SIGPIPE has ended.
BROKEN_PIPE = 128 + signal.SIGPIPE
# A command, the module whose main() does it, and what is put before the user's own arguments.
COMMANDS = {
    "run": (RUN, (), "build, audit, load, test and time the rows of matrix.toml"),
    "list": (RUN, ("--list",), "list the rows"),
    "expand": (RUN, ("--list", "--json"), "the rows as JSON, for a matrix of GitHub Actions"),
    "check": (RUN, ("--check",), "check matrix.toml and what is made from it"),
    "report": (RUN, ("--report",), "report what earlier runs have kept"),
    "page": ("torchproof.report.page.check", (), "look at the report's page in headless Chromium"),
    "audit": ("torchproof.audit.__main__", (), "where wheels, packages and libraries will load"),
    "grid": ("torchproof.grid.__main__", (), "load wheels into torches, beside the prediction"),
    "doctor": ("torchproof.doctor.__main__", (), "the rule that a load error breaks, and its fix"),
    "crossload": ("torchproof.grid.__main__", ("--built",), "the grid of the project's wheels"),
    "init": ("torchproof.template.__main__", (), "make a new extension project"),
    "conda": ("torchproof.conda.__main__", (), "build, test and install the conda packages"),
    "release": ("torchproof.release.__main__", (), "build or check what is released"),
}


def usage() -> str:
    """Every command in a line."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {what}" for name, (_, _, what) in COMMANDS.items())
    return "\n".join(["torchproof COMMAND [--help] ...", "", *lines])


def command(argv: list[str]) -> int:
    """Run a command; options without one are those of `run`."""
    if argv[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    name, rest = (argv[0], argv[1:]) if argv and argv[0][:1] != "-" else ("run", argv)
    if name not in COMMANDS:
        print(f"torchproof: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module, before, _ = COMMANDS[name]
    code: int = importlib.import_module(module).main([*before, *rest])
    return code


def main(argv: list[str] | None = None) -> int:
    """Run a command, which ends without a word where its reader has: `torchproof list | head`."""
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
