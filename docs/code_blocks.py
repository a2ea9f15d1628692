"""Executes every code block of every page and the README, as a plugin of pytest.

`nox -s docs` runs it.

Four kinds of block exist, and a block of any other kind is an error:

    python                  executed, page by page in one namespace; with >>> its output is compared
    console                 each `$ command` run by bash in a copy of the checkout, its output
                            compared where it is shown (`...` stands for anything); a command that
                            fails must show so, as a last line `(exit STATUS)`
    any, with a :caption:   a file of that name, written into the copy
    text                    what something says: nothing to execute
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer
from sybil.parsers.myst.lexers import DirectiveLexer

import lltm

ROOT = Path(__file__).parents[1]
SCRIPTS = Path(sys.executable).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LIMIT_S = 300


def copy_checkout(namespace: dict[str, Any]) -> None:
    """Give a page a checkout of its own, complete with the library that is installed here."""
    folder = Path(tempfile.mkdtemp(prefix="lltm-docs-"))
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    shutil.copytree(Path(lltm.__file__).parent / "lib", folder / "lltm" / "lib")
    namespace["checkout"] = folder
    namespace["started_in"] = Path.cwd()
    os.chdir(folder)
    torch.manual_seed(0)


def remove_checkout(namespace: dict[str, Any]) -> None:
    """Take it away again."""
    os.chdir(namespace["started_in"])
    shutil.rmtree(namespace["checkout"])


def write_file(example: Example) -> None:
    """A block with a caption is a file."""
    path = example.namespace["checkout"] / example.region.lexemes["options"]["caption"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(example.parsed), encoding="utf-8")


def run_console(example: Example) -> str | None:
    """Run each command; the first difference from the output that is shown is the failure."""
    for command, expected in commands(example.parsed):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=example.namespace["checkout"],
            env={
                **os.environ,
                "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "100",
            },
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        found = done.stdout + (f"(exit {done.returncode})\n" if done.returncode else "")
        fine = not done.returncode and not expected
        if not fine and not shows(expected, found):
            return f"$ {command}\nexpected:\n{expected}\nfound:\n{found}"
    return None


def shows(expected: str, found: str) -> bool:
    """Whether an output is as shown: `...` stands for anything, white space for white space."""
    parts = (re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(r"\s*.*?\s*".join(parts), " ".join(found.split()), re.DOTALL) is not None


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown; `> ` continues a command."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


def refuse(example: Example) -> str:
    """No block may be left out unseen."""
    kind = example.region.lexemes["arguments"]
    return f"nothing executes {kind!r} blocks; see {Path(__file__).name}"


def blocks(document: Document) -> Iterable[Region]:
    """Every code block of a page, with what executes it."""
    fenced = FencedCodeBlockLexer(r"(?!\{)\S+", {"language": "arguments", "source": "source"})
    directives = DirectiveLexer(r"code-block", r"\S+")
    for region in (*fenced(document), *directives(document)):
        language = region.lexemes["arguments"]
        source = region.lexemes["source"]
        region.parsed = source
        if region.lexemes.get("options", {}).get("caption"):
            region.evaluator = write_file
        elif language == "console":
            region.evaluator = run_console
        elif language == "python" and source.startswith(">>>"):
            for example in DocTestStringParser(DocTestEvaluator(FLAGS))(source, document.path):
                example.adjust(region, source)
                yield example
            continue
        elif language == "python":
            region.evaluator = PythonEvaluator()
        elif language == "text":
            continue
        else:
            region.evaluator = refuse
        yield region


pytest_collect_file = Sybil(
    path=str(ROOT),
    parsers=[blocks],
    patterns=["*.md"],
    setup=copy_checkout,
    teardown=remove_checkout,
).pytest()
