"""The programs that the campaign `faults` disturbs: how each is run, and what must come of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "LLTM_FAULT"
LIMIT_S = 1800.0
SUITE = re.compile(r"paths = \[.*?\], arguments = \[.*?\]")
SHORT_SUITE = 'paths = ["tests/op/test_errors.py"], arguments = []'
FAKES = ROOT / "torchproof" / "tests" / "fakes" / "run.py"
JIT = """
import torch, lltm, lltm.jit
lltm.jit.load(optimise=("-O0",))
torch.manual_seed(0)
arguments = [torch.randn(n) for n in ((3, 5), (12, 9), (12,), (3, 4), (3, 4))]
got = lltm.functional.lltm_cell(*arguments, backend="jit")
torch.testing.assert_close(got, lltm.functional.lltm_cell(*arguments, backend="reference"))
print("right")
"""


class Broken(Exception):
    """A property does not hold; the message says which."""


@dataclass(frozen=True)
class Started:
    """A program that runs; its output goes to a file, which nothing that outlives it holds open."""

    process: subprocess.Popen[bytes]
    file: Path

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.file.read_text(encoding="utf-8", errors="replace")

    def end(self, seconds: float) -> int | None:
        """The exit status; None where it has not ended in that time."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None


@dataclass(frozen=True)
class Subject:
    """A program that is disturbed.

    Attributes:
        command: for a folder; it goes on where it was disturbed when it is run again.
        environment: for a folder.
        result: what a run that ended well has left or printed; equal after every disturbance.
        believed: raises Broken where something half-written is taken for whole.
        first_s: no disturbance before: the interpreter itself is starting.
        disturbances: how often a case disturbs it before it may finish.
        explains: whether it ends in a sentence and no traceback, as a program does.
        lock: the file that it locks, in a folder.
        writes: where it writes to, for a folder.
        prepare: fills a new folder.
        directory: it is started in, for a folder.
    """

    name: str
    command: Callable[[Path], list[str]]
    environment: Callable[[Path], dict[str, str]]
    result: Callable[[Path, str], Any]
    believed: Callable[[Path], None]
    first_s: float = 0.5
    disturbances: int = 2
    explains: bool = True
    lock: str = "lock"
    writes: Callable[[Path], Path] = lambda folder: folder
    prepare: Callable[[Path], Any] = lambda _: None
    directory: Callable[[Path], Path] = lambda _: ROOT

    def start(self, folder: Path, mark: str, *wrap: str) -> Started:
        """Start it."""
        file = folder.with_name(f"{folder.name}-{uuid.uuid4().hex}.output")
        # A shell makes its jobs in the background deaf to SIGINT, and they hand that down.
        begin = ("env", "--default-signal=INT", f"--chdir={self.directory(folder)}")
        with file.open("wb") as output:
            process = subprocess.Popen(
                [*wrap, *begin, *self.command(folder)],
                env={**os.environ, **self.environment(folder), MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return Started(process, file)

    def finish(self, folder: Path, *wrap: str) -> tuple[int, str]:
        """Run it to its end; the status and the output."""
        started = self.start(folder, "undisturbed", *wrap)
        code = started.end(LIMIT_S)
        if code is None:
            started.process.kill()
            started.process.wait()
            raise Broken(f"it does not end within {LIMIT_S:.0f} s")
        return code, started.output

    def check_refused(self, code: int, output: str, expect: str = "") -> None:
        """It ended with a sentence, which has some words."""
        if self.explains and "Traceback" in output:
            raise Broken(f"it ends in a traceback: {last_line(output)}")
        if code not in (1, 2) or expect not in output:
            raise Broken(f"it ends with {code}: {output[-300:]}")

    def check(self, folder: Path, expected: Any, *wrap: str, seen: Path | None = None) -> None:
        """Run it undisturbed, and compare; `seen`: where its folder is, for this process."""
        code, output = self.finish(folder, *wrap)
        if code:
            raise Broken(f"run again, it ends with {code}: {output[-300:]}")
        if (got := self.result(seen or folder, output)) != expected:
            raise Broken(f"run again, its result differs: {difference(got, expected)}")


def last_line(output: str) -> str:
    """Where an output says why it ended."""
    return output.strip().rpartition("\n")[2]


def difference(got: Any, expected: Any) -> str:
    """Where two results differ."""
    if isinstance(got, list) and isinstance(expected, list):
        got, expected = (
            [each for each in one if each not in other]
            for one, other in ((got, expected), (expected, got))
        )
    return f"{got!s:.300} in place of {expected!s:.300}"


def rows(folder: Path, _: str) -> Any:
    """The report's rows without times, hashes, and the log of a build that was kept."""
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return sorted(
        (row["id"], row["status"], str(row["tests"]), str(row["worst"])) for row in document["rows"]
    )


def packages(folder: Path, _: str) -> Any:
    """What the report of `torchproof conda` shows, without times and what was kept.

    A package holds the time it was built at, so that its hash is that of no other run; that two
    builds at one time are equal is among the proofs.
    """
    file = folder / "build" / "conda" / "report.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    varies = ("seconds", "kept", "file", "bytes", "sha256")
    lists = ("packages", "environments", "proofs", "rendered")
    shown = [
        (kind, *(f"{name}={value}" for name, value in each.items() if not name.endswith(varies)))
        for kind in lists
        for each in document[kind]
    ]
    return [*sorted(shown), document["ok"], document["channel_packages"], document["not_run"]]


def whole_rows(folder: Path) -> None:
    """Every row that is kept is whole."""
    for path in folder.glob("rows/*.json"):
        try:
            status = json.loads(path.read_text(encoding="utf-8"))["status"]
        except (ValueError, KeyError) as error:
            raise Broken(f"{path.name} is half-written: {error}") from error
        if status not in ("passed", "failed", "not run"):
            raise Broken(f"{path.name} has the status {status}")


def whole_packages(folder: Path) -> None:
    """Every package that the channel's states name is there, and a zip without a fault."""
    channel = folder / "build" / "conda" / "channel"
    for state in channel.glob("parts/*.json"):
        for name in json.loads(state.read_text(encoding="utf-8"))["files"]:
            try:
                with zipfile.ZipFile(channel / name) as package:
                    bad = package.testzip()
            except (OSError, zipfile.BadZipFile) as error:
                raise Broken(f"{state.name} names {name}: {error}") from error
            if bad:
                raise Broken(f"{state.name} names {name}, in which {bad} is damaged")


def tree(folder: Path) -> None:
    """Copy what git tracks: a run of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / "build").mkdir()


def short_tree(folder: Path) -> None:
    """Copy what git tracks, with suites of a minute: a longer pytest is disturbed no otherwise."""
    tree(folder)
    matrix = folder / "matrix.toml"
    text, count = SUITE.subn(SHORT_SUITE, matrix.read_text(encoding="utf-8"))
    if not count:
        raise SystemExit(f"{matrix.name} has no suite as it is written here")
    matrix.write_text(text, encoding="utf-8")


def fakes(**happenings: Any) -> Callable[[Path], dict[str, str]]:
    """What the fakes of environments, builds and tests do."""
    return lambda _: {"STANDIN": json.dumps(happenings)}


MATRIX = Subject(
    "matrix",
    lambda folder: [sys.executable, str(FAKES), str(folder), "2", "resume", "report"],
    fakes(build={"native": "pause"}, tests={"": "pause"}),
    rows,
    whole_rows,
    first_s=0.3,
)
JIT_LOAD = Subject(
    "lltm.jit.load",
    lambda _: [sys.executable, "-P", "-c", JIT],
    lambda folder: {"TORCH_EXTENSIONS_DIR": str(folder), "MAX_JOBS": "2"},
    lambda _, output: output.strip().splitlines()[-1],
    lambda _: None,  # the next call loads it, and compares what it computes
    explains=False,  # the traceback is that of `python -c`
    lock="*/lltm.lock",
)
CONDA = Subject(
    "conda",
    lambda _: [sys.executable, "-m", "torchproof", "conda"],
    # Kernels for a GPU take minutes more, through the same steps.
    lambda folder: {"CUDA_HOME": str(folder / "none")},
    packages,
    whole_packages,
    disturbances=1,
    lock="build/conda/lock",
    writes=lambda folder: folder / "build",
    prepare=short_tree,
    directory=lambda folder: folder,
)
