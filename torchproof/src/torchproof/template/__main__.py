"""`torchproof init DIR`: a new extension project whose matrix and tests pass at once."""

import argparse
import shlex
import sys
from pathlib import Path

from torchproof.errors import TorchproofError
from torchproof.interrupts import INTERRUPTED
from torchproof.template import create

BAD_INPUT = 2


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="torchproof init",
        description=__doc__,
        epilog="What is not given is asked for on a terminal, and has its default elsewhere."
        " Exit codes: 0 the project is made; 2 bad input.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="absent, or empty")
    parser.add_argument("--name", help="of package and distribution (default: from DIR)")
    parser.add_argument("--author", help="as the licence names them (default: git's user.name)")
    parser.add_argument(
        "--cuda",
        action=argparse.BooleanOptionalAction,
        help="with a CUDA kernel beside the CPU's (default: without)",
    )
    parser.add_argument(
        "--torchproof",
        metavar="REQUIREMENT",
        help="what the project's sessions install (default: what this one was installed from)",
    )
    parser.add_argument(
        "--template",
        metavar="SOURCE",
        help="a git repository or folder with another copier template (default: torchproof's)",
    )
    parser.add_argument("--ref", help="the template's tag, branch or commit (default: newest tag)")
    parser.add_argument("--defaults", action="store_true", help="ask for nothing")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    chosen = arguments(argv)
    given = {name: getattr(chosen, name) for name in ("name", "author", "cuda", "torchproof")}
    request = create.Request(
        folder=chosen.folder,
        answers={name: value for name, value in given.items() if value is not None},
        ask=sys.stdin.isatty() and not chosen.defaults,
        template=chosen.template,
        ref=chosen.ref,
    )
    try:
        can_update = create.create(request)
    except create.InterruptedError as error:
        print(f"init: {error}", file=sys.stderr)
        return INTERRUPTED
    except TorchproofError as error:
        print(f"init: {error}", file=sys.stderr)
        return BAD_INPUT
    print(f"made {chosen.folder}; go on with\n")
    folder = shlex.quote(str(chosen.folder))
    print(f"  cd {folder} && git init && git add . && git commit -m 'Start'")
    print("  nox -s tests\n  nox -s matrix\n")
    if can_update:
        print("and later `copier update`, for what the template has learned since")
    else:
        print(
            "`copier update` needs the template's git repository, which this installation does "
            "not name: give it with --template"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
