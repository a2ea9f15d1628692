"""What is printed is what was meant: brackets in a message are text, not markup."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from torchproof.conda.steps import Steps
from torchproof.machine.inventory import Interpreter, Machine
from torchproof.report import run_report
from torchproof.rows import results
from torchproof.rows.plan import expand, place
from torchproof.rows.progress import Progress

from torchproof import config, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE = "tests: 1 failed, first t::two[fused-cell]: expected [/x] and :smile:, found [bold]"


def printed(say: Callable[[Console], object], console: Callable[..., Console] = Console) -> str:
    """What is printed on a console, also on one that reads markup."""
    output = io.StringIO()
    say(console(file=output, width=400))
    return output.getvalue()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied", "/x/build"),
            "/x/build: Permission denied; run this where you may read and write",
        ),
        (OSError(28, "No space left on device"), "No space left on device; free some space"),
        (FileExistsError(17, "File exists", "/x"), "/x: File exists\n"),
        (OSError("of no system call"), "of no system call\n"),
        (config.ConfigError("line 2: wrong"), "line 2: wrong\n"),
    ],
)
def test_an_error_is_a_sentence_with_a_remedy(error: Exception, message: str) -> None:
    assert printed(lambda console: terminal.print_error(console, error)).startswith(
        f"error: {message}"
    )


def failed() -> results.Result:
    matrix = config.load()
    machine = Machine(Interpreter(Path("python"), "3.11.7"), (), (), None, gpu=False)
    placed = place(matrix, expand(matrix, "pr"), machine)[0]
    result = results.begin(placed.row)
    return dataclasses.replace(result, status=results.FAILED, reason=MESSAGE)


def test_a_row_that_failed_is_printed_as_it_failed() -> None:
    assert MESSAGE in printed(lambda console: Progress(console).finished(failed()))
    assert MESSAGE in printed(lambda console: console.print(run_report.summary([failed()])))


def test_a_failure_is_one_line_in_a_narrow_log() -> None:
    output = io.StringIO()
    Progress(Console(file=output, width=40)).finished(failed())
    assert f": {MESSAGE}\n" in output.getvalue()


def test_a_row_that_tests_for_long_prints_how_far_it_is() -> None:
    def say(quiet: float) -> Callable[[Console], None]:
        def of(console: Console) -> None:
            progress = Progress(console, quiet=quiet)
            progress.phase("a row", "tests")
            progress.share("a row", 43)

        return of

    assert "a row: tests 43 %" in printed(say(quiet=0.0))
    assert "%" not in printed(say(quiet=60.0))


def test_a_step_is_printed_as_it_is_named() -> None:
    def say(console: Console) -> None:
        Steps(console).say(MESSAGE, "red")

    assert MESSAGE in printed(say)


def test_a_message_is_printed_as_it_is() -> None:
    assert printed(lambda console: console.print(MESSAGE), terminal.console) == f"{MESSAGE}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["expand"], ["doctor", "--json", "undefined symbol: f"]]
)
def test_a_reader_that_ends_first_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "torchproof", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_a_shell_has_closed_is_no_error(closed: str) -> None:
    command = [sys.executable, "-m", "torchproof", "list"]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("torch" in done.stdout) == (closed == "2>&-")


def test_input_that_a_shell_has_closed_is_empty() -> None:
    command = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "torchproof", "doctor", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("doctor: the message is empty; ")


def test_a_message_has_any_bytes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchproof", "doctor", "-"],
        input=b"caf\xe9.so: undefined symbol: PyErr_Clear",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"PyErr_Clear" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_a_report_is_printed_in_any_locale(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchproof", "report"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("\u2014" if encoding == "utf-8" else r"\u2014") in done.stdout.decode(encoding)
