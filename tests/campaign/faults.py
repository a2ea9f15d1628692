"""Kill, starve and lock out what runs for long: `nox -s faults -- --minutes 15 --seed 1`.

Each case disturbs a program at a random moment, and then lets it run again undisturbed: the result
must be that of a run that nothing disturbed, nothing of the first may live on for 5 s, and nothing
half-written may be believed. `--prove` plants a bug and requires that it is found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from record import ROOT, Proof, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
MARK = "LLTM_FAULT"
GRACE_S = 5.0
LIMIT_S = 900.0
CASES = 30
FAKES = ROOT / "torchproof" / "tests" / "fakes" / "run.py"
# A shell makes its jobs in the background deaf to SIGINT, and they hand that down.
HEAR = ("env", "--default-signal=INT")
JIT = """
import torch, lltm, lltm.jit
lltm.jit.load(optimise=("-O0",))
torch.manual_seed(0)
arguments = [torch.randn(n) for n in ((3, 5), (12, 9), (12,), (3, 4), (3, 4))]
got = lltm.functional.lltm_cell(*arguments, backend="jit")
torch.testing.assert_close(got, lltm.functional.lltm_cell(*arguments, backend="reference"))
print("right")
"""
# A supervisor that supervises nothing: what it starts outlives whoever started it.
UNSUPERVISED = """
import runpy, sys
from torchproof.machine import processes
exec_it = "import os, sys; os.execvp(sys.argv[2], sys.argv[2:])"
processes.SUPERVISE = (sys.executable, "-c", exec_it)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Broken(Exception):
    """A property does not hold; the message says which."""


@dataclass(frozen=True)
class Subject:
    """A program that is disturbed.

    Attributes:
        command: for a folder; it goes on where it was disturbed when it is run again.
        environment: for a folder.
        result: what a run that ended well has left; equal after every disturbance.
        believed: raises Broken where something half-written is taken for whole.
        first_s: no disturbance before: the interpreter itself is starting.
        last_s: none after; None for the length of an undisturbed run, which also must end well.
    """

    name: str
    command: Callable[[Path], list[str]]
    environment: Callable[[Path], dict[str, str]]
    result: Callable[[Path, str], Any]
    believed: Callable[[Path], None]
    first_s: float
    last_s: float | None = None

    def start(self, folder: Path, mark: str, *wrap: str) -> subprocess.Popen[str]:
        """Start it; its output is a pipe."""
        return subprocess.Popen(
            [*HEAR, *wrap, *self.command(folder)],
            env={**os.environ, **self.environment(folder), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder if (folder / "matrix.toml").is_file() else ROOT,
            text=True,
        )

    def finish(self, folder: Path, *wrap: str) -> tuple[int, str]:
        """Run it to its end; the status and the output."""
        process = self.start(folder, "undisturbed", *wrap)
        output, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, output

    def check(self, folder: Path, expected: Any) -> None:
        """Run it undisturbed, and compare."""
        code, output = self.finish(folder)
        if code:
            raise Broken(f"run again, it ends with {code}: {output[-300:]}")
        if (got := self.result(folder, output)) != expected:
            raise Broken(f"run again, its result differs: {str(got)[:200]}")


class Process(NamedTuple):
    """A process that carries a mark."""

    pid: int
    command: str


def new_mark() -> str:
    """A mark for what one case starts; it begins with this campaign's own."""
    return f"{os.getpid()}-{uuid.uuid4().hex}"


def living(mark: str) -> list[Process]:
    """The processes whose mark begins so."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if f"\0{MARK}={mark}".encode() in b"\0" + (process / "environ").read_bytes():
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(Process(int(process.name), line.strip()[:80]))
    return found


def await_none(mark: str) -> None:
    """Nothing of a run outlives it by 5 s."""
    end = time.monotonic() + GRACE_S
    while (left := living(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        raise Broken(f"{len(left)} processes live on: {left[0].command}")


def disturb(subject: Subject, folder: Path, name: str, moment: float) -> None:
    """Send a signal at a moment; then nothing lives on, and nothing half-written is believed."""
    mark = new_mark()
    process = subject.start(folder, mark)
    try:
        output, _ = process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.Signals[name])
        try:
            output, _ = process.communicate(timeout=GRACE_S + 25)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Broken(f"{name} does not end it") from None
    await_none(mark)
    subject.believed(folder)
    if name == "SIGINT" and "Traceback" in output and subject.name != "lltm.jit.load":
        raise Broken(f"SIGINT gives a traceback: {output.strip().splitlines()[-1]}")


def rows(folder: Path, _: str) -> Any:
    """The report's rows without times, hashes, and the log of a build that was kept."""
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return sorted(
        (row["id"], row["status"], str(row["tests"]), str(row["worst"])) for row in document["rows"]
    )


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


def tree(folder: Path) -> Path:
    """Copy what git tracks: a run of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


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
    first_s=0.5,
)
CONDA = Subject(
    "conda",
    lambda _: [sys.executable, "-m", "torchproof.conda"],
    lambda _: {},
    lambda *_: None,
    whole_packages,
    first_s=0.5,
    last_s=45.0,
)


@dataclass
class Campaign:
    """Cases so far."""

    scratch: Path
    random: random.Random
    deadline: float
    survived: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many ended, well or not."""
        return sum(self.survived.values()) + len(self.findings)

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Count a case; what breaks a property is a finding, and the campaign goes on."""
        try:
            yield
        except Broken as broken:
            self.findings.append(f"{name}: {broken}")
            print(f"finding: {name}: {broken}", flush=True)
        else:
            self.survived[name.split(" at ", maxsplit=1)[0]] += 1
            print(f"survived: {name}", flush=True)

    def folder(self, subject: Subject) -> Path:
        """A new folder."""
        made = self.scratch / f"{subject.name}-{uuid.uuid4().hex[:8]}"
        made.mkdir()
        return tree(made) if subject is CONDA else made

    def undisturbed(self, subject: Subject) -> tuple[Any, float]:
        """The result and the seconds of a run that nothing disturbs."""
        if subject.last_s is not None:
            return None, subject.last_s
        folder, started = self.folder(subject), time.monotonic()
        code, output = subject.finish(folder)
        if code:
            raise SystemExit(f"{subject.name} does not pass undisturbed: {output[-2000:]}")
        return subject.result(folder, output), time.monotonic() - started

    def signals(self, subject: Subject, cases: int) -> None:
        """Disturb it, with each signal in turn, at random moments; twice before it may finish."""
        expected, length = self.undisturbed(subject)
        for number in range(cases):
            if time.monotonic() > self.deadline:
                self.not_run.append(f"{cases - number} signals to {subject.name}: no time left")
                return
            name, folder = SIGNALS[number % len(SIGNALS)], self.folder(subject)
            moments = [self.random.uniform(subject.first_s, length) for _ in range(2)]
            what = f"{subject.name}: {name} at {moments[0]:.1f} s and {moments[1]:.1f} s"
            with self.case(what):
                for moment in moments:
                    disturb(subject, folder, name, moment)
                if subject.last_s is None:
                    subject.check(folder, expected)
            shutil.rmtree(folder, ignore_errors=True)

    def storage(self, subject: Subject, size: str, full: str, read_only: str) -> None:
        """A disk that is full, and one that cannot be written: a sentence, and then a sound run."""
        expected, _ = self.undisturbed(subject)
        faults = (("full disk", f"size={size}", full), ("read-only", "size=1g", read_only))
        for fault, options, expect in faults:
            folder = self.scratch / f"disk-{uuid.uuid4().hex[:8]}"
            folder.mkdir()
            if not _mount(folder, "-t", "tmpfs", "-o", options, "none"):
                self.not_run.append(f"{subject.name}: {fault}: this user may not mount a tmpfs")
                continue
            try:
                if fault == "read-only":
                    _mount(folder, "-o", "remount,ro")
                with self.case(f"{subject.name}: {fault}"):
                    code, output = subject.finish(folder)
                    if code == 0 or expect not in output:
                        raise Broken(f"it ends with {code}: {output[-300:]}")
                    _mount(folder, "-o", "remount,rw,size=1g")
                    subject.check(folder, expected)
            finally:
                subprocess.run(["umount", "--lazy", str(folder)], check=False)

    def network(self) -> None:
        """No network and no cache: environments and locks fail with a sentence."""
        alone = ("unshare", "--net")
        if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
            self.not_run.append("no network: this user may not make a network namespace")
            return
        folder = tree(self.folder(CONDA) / "alone")
        empty = {**os.environ, "UV_CACHE_DIR": str(folder / "cache"), "UV_FIND_LINKS": ""}
        empty |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "UV_HTTP_RETRIES": "0"}
        rows = ("run", "--select", "binding=stable,level=host", "--jobs", "1")
        for name, command in (
            ("matrix", [sys.executable, "-m", "torchproof", *rows]),
            ("lock", [sys.executable, "-m", "torchproof", "lock"]),
        ):
            with self.case(f"{name}: no network"):
                done = subprocess.run(
                    [*alone, *command],
                    cwd=folder,
                    env=empty,
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                    check=False,
                )
                output = done.stdout + done.stderr
                if done.returncode not in (1, 2) or "Traceback" in output:
                    raise Broken(f"it ends with {done.returncode}: {output[-300:]}")

    def locks(self) -> None:
        """A folder that a living process holds is refused, one that a dead one held is taken."""
        subject = MATRIX
        folder, mark = self.folder(subject), new_mark()
        holder = subject.start(folder, mark)
        while not (folder / "lock").exists() or not (folder / "lock").read_text():
            time.sleep(0.02)
        with self.case("matrix: a lock of a living process"):
            code, output = subject.finish(folder)
            if code != 2 or f"another run, process {holder.pid}," not in output:
                raise Broken(f"it ends with {code}: {output[-300:]}")
        holder.kill()
        holder.communicate()
        with self.case("matrix: a lock of a dead process"):
            await_none(mark)
            code, output = subject.finish(folder)
            if code:
                raise Broken(f"it ends with {code}: {output[-300:]}")


def _mount(folder: Path, *options: str) -> bool:
    command = ["mount", *options, str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def prove(scratch: Path, seed: int) -> bool:
    """Whether a runner whose commands outlive it is found."""
    planted = scratch / "unsupervised.py"
    planted.write_text(UNSUPERVISED, encoding="utf-8")
    campaign = Campaign(scratch, random.Random(seed), time.monotonic() + LIMIT_S)
    command = [sys.executable, str(planted), str(FAKES)]
    unsupervised = replace(
        MATRIX,
        command=lambda folder: [*command, str(folder), "2"],
        environment=fakes(tests={"": "hang"}),
        last_s=10.0,
    )
    campaign.signals(unsupervised, 6)
    for left in living(str(os.getpid())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)
    found = [line for line in campaign.findings if "live on" in line]
    print(f"the planted bug was {'found' if found else 'not found'}")
    return bool(found)


def main() -> int:
    """The exit status is 0 where nothing, or with `--prove` the planted bug, was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=CASES, help="signals, over all programs")
    parser.add_argument("--prove", action="store_true", help="plant a bug, which must be found")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        if options.prove:
            proof = Proof("faults", 1, int(prove(scratch, options.seed)))
            print(proof.write(commit=options.record))
            return proof.exit_status
        deadline = time.monotonic() + 60 * options.minutes
        campaign = Campaign(scratch, random.Random(options.seed), deadline)
        campaign.locks()
        campaign.network()
        campaign.storage(MATRIX, "64k", "No space left", "Read-only file system")
        campaign.storage(JIT_LOAD, "256k", "lltm.jit.load() could not build", "cannot write to")
        for subject, share in ((MATRIX, 0.6), (JIT_LOAD, 0.2), (CONDA, 0.2)):
            campaign.signals(subject, round(share * options.cases))
    record = Record(
        campaign="faults",
        seed=options.seed,
        minutes=options.minutes,
        cases=campaign.cases,
        unit="faults",
        findings=tuple(campaign.findings),
        not_run=tuple(campaign.not_run),
        figures={"survived": sum(campaign.survived.values()), **campaign.survived},
    )
    file = record.write(commit=options.record)
    print(f"{campaign.cases} faults, {len(campaign.findings)} findings: {file}")
    for line in campaign.not_run:
        print(f"not run: {line}")
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
