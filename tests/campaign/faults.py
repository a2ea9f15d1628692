"""Kill, starve and lock out what runs for long: `nox -s faults -- --minutes 15 --seed 1`.

Each case disturbs a program at a random moment, and then lets it run again undisturbed: the result
must be that of a run that nothing disturbed, nothing of the first may live on for 5 s, and nothing
half-written may be believed. `--prove` plants a bug of each kind and requires that it is found.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fault_namespaces
from arguments import minutes
from fault_programs import (
    CONDA,
    JIT_LOAD,
    LIMIT_S,
    MARK,
    MATRIX,
    Broken,
    Started,
    Subject,
    fakes,
    last_line,
    tree,
)
from record import Proof, Record
from torchproof.arguments import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
GRACE_S = 5.0
# A program that is told to end may finish what it cannot leave.
END_S = 30.0
CASES = 30
SHARES = ((MATRIX, 0.6), (JIT_LOAD, 0.3), (CONDA, 0.1))
PLANTER = Path(__file__).with_name("fault_plants.py")


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


def end_all(mark: str) -> None:
    """Kill what is left of a run."""
    for left in living(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)


def await_none(mark: str) -> None:
    """Nothing of a run that has ended outlives it by 5 s."""
    end = time.monotonic() + GRACE_S
    while (left := living(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        end_all(mark)
        raise Broken(f"{len(left)} processes live on: {left[0].command}")


def disturb(subject: Subject, folder: Path, name: str, moment: float) -> None:
    """Send a signal at a moment; then nothing lives on, and nothing half-written is believed."""
    mark = new_mark()
    started = subject.start(folder, mark)
    code = started.end(moment)
    if code is None:
        started.process.send_signal(signal.Signals[name])
        if started.end(END_S) is None:
            end_all(mark)
            started.process.wait()
            raise Broken(f"{name} does not end it within {END_S:.0f} s")
    elif code:
        raise Broken(f"before it is disturbed, it ends with {code}: {started.output[-300:]}")
    await_none(mark)
    subject.believed(folder)
    if name == "SIGINT" and subject.explains and "Traceback" in started.output:
        raise Broken(f"SIGINT gives a traceback: {last_line(started.output)}")


@dataclass
class Campaign:
    """Cases so far."""

    scratch: Path
    random: random.Random
    deadline: float
    survived: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    known: dict[str, tuple[Any, float]] = field(default_factory=dict)

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
        subject.prepare(made)
        return made

    def undisturbed(self, subject: Subject) -> tuple[Any, float]:
        """The result and the seconds of a run that nothing disturbs."""
        if subject.name not in self.known:
            folder, started = self.folder(subject), time.monotonic()
            code, output = subject.finish(folder)
            if code:
                raise SystemExit(f"{subject.name} does not pass undisturbed: {output[-2000:]}")
            result = subject.result(folder, output)
            self.known[subject.name] = (result, time.monotonic() - started)
            shutil.rmtree(folder, ignore_errors=True)
        return self.known[subject.name]

    def signals(self, subject: Subject, cases: int) -> None:
        """Disturb it, with each signal in turn, at random moments; then let it finish."""
        for number in range(cases):
            if time.monotonic() > self.deadline:
                self.not_run.append(f"{cases - number} signals to {subject.name}: no time left")
                return
            expected, length = self.undisturbed(subject)
            name, folder = SIGNALS[number % len(SIGNALS)], self.folder(subject)
            moments = [
                self.random.uniform(subject.first_s, length) for _ in range(subject.disturbances)
            ]
            at = " and ".join(f"{moment:.1f} s" for moment in moments)
            with self.case(f"{subject.name}: {name} at {at}"):
                for moment in moments:
                    disturb(subject, folder, name, moment)
                subject.check(folder, expected)
            shutil.rmtree(folder, ignore_errors=True)

    def full_disk(self, subject: Subject, size: str, expect: str, *, room: bool = True) -> None:
        """A disk that is full: a sentence, and then, where there is room enough, a sound run."""
        self._storage(f"{subject.name}: full disk", subject, size, (), expect, room=room)

    def read_only(self, subject: Subject, expect: str, *, room: bool = True) -> None:
        """A folder that cannot be written: a sentence, and once it can be a sound run."""
        self._storage(f"{subject.name}: read-only", subject, "1g", ("ro",), expect, room=room)

    def _storage(
        self,
        name: str,
        subject: Subject,
        size: str,
        options: tuple[str, ...],
        expect: str,
        *,
        room: bool,
    ) -> None:
        expected = self.undisturbed(subject)[0] if room else None
        folder = self.folder(subject)
        disk = fault_namespaces.mount(subject.writes(folder), size)
        if disk is None:
            self.not_run.append(f"{name}: {fault_namespaces.REFUSED}")
            return
        for option in options:
            disk.remount(option)
        with self.case(name):
            subject.check_refused(*subject.finish(folder, *disk.enter), expect)
            disk.remount("rw,size=1g")
            if room:
                subject.check(folder, expected, *disk.enter, seen=disk.seen)
        disk.close()

    def network(self, subject: Subject, expect: str = "") -> None:
        """Without network it ends with a sentence, or well where none is expected."""
        alone = fault_namespaces.without_network()
        name = f"{subject.name}: no network"
        if alone is None:
            self.not_run.append(f"{name}: {fault_namespaces.REFUSED}")
            return
        folder = self.folder(subject)
        with self.case(name):
            code, output = subject.finish(folder, *alone)
            if expect:
                subject.check_refused(code, output, expect)
            elif code:
                raise Broken(f"it ends with {code}: {output[-300:]}")
        shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def holding(self, subject: Subject) -> Iterator[tuple[Path, Started, str]]:
        """A folder that a living process has locked, that process, and its mark."""
        folder, mark = self.folder(subject), new_mark()
        holder = subject.start(folder, mark)
        # One of ours is there from the first run on, and names the process while one holds it.
        while not any(
            file.name != "lock" or file.stat().st_size for file in folder.glob(subject.lock)
        ):
            if holder.process.poll() is not None:
                raise SystemExit(f"{subject.name} holds no {subject.lock}: {holder.output[-2000:]}")
            time.sleep(0.02)
        try:
            yield folder, holder, mark
        finally:
            holder.process.kill()
            holder.process.wait()
            await_none(mark)
            shutil.rmtree(folder, ignore_errors=True)

    def lock_of_living(self, subject: Subject, expect: str) -> None:
        """What a living process holds is refused, or waited for."""
        name = f"{subject.name}: a lock of a living process"
        with self.case(name), self.holding(subject) as (folder, holder, _):
            code, output = subject.finish(folder)
            if code:
                subject.check_refused(code, output)
            if expect.format(holder.process.pid) not in output:
                raise Broken(f"it ends with {code}: {output[-300:]}")

    def lock_of_dead(self, subject: Subject) -> None:
        """What a dead process held is taken."""
        expected, _ = self.undisturbed(subject)
        name = f"{subject.name}: a lock of a dead process"
        with self.case(name), self.holding(subject) as (folder, holder, mark):
            holder.process.kill()
            holder.process.wait()
            await_none(mark)
            subject.check(folder, expected)


def alone(name: str, *command: str) -> Subject:
    """A command of torchproof in a tree of its own, with nothing that was fetched before."""

    def environment(folder: Path) -> dict[str, str]:
        cached = {"UV_CACHE_DIR": str(folder / "cache"), "PIP_CACHE_DIR": str(folder / "cache")}
        none = {
            **CONDA.environment(folder),
            "UV_FIND_LINKS": "",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": os.devnull,
        }
        return {**cached, **none, "UV_HTTP_RETRIES": "0", "PIP_RETRIES": "0"}

    program = [sys.executable, "-m", "torchproof", *command]
    return replace(
        CONDA, name=name, command=lambda _: program, environment=environment, prepare=tree
    )


ROWS = ("run", "--select", "binding=stable,level=host", "--jobs", "1")
NOT_FETCHED = "Failed to fetch"
ALONE = (
    (alone("matrix", *ROWS), NOT_FETCHED),
    (alone("lock", "lock"), NOT_FETCHED),
    (alone("conda", "conda"), "pip cannot download"),
)
HELD = "another run, process {},"
WAITED_FOR = "another process is building"
NO_SPACE, READ_ONLY = "No space left", "Read-only file system"


def run(campaign: Campaign, cases: int) -> None:
    """Every kind of fault; the signals, which take longest, at the end."""
    for subject, expect in ((MATRIX, HELD), (CONDA, HELD), (JIT_LOAD, WAITED_FOR)):
        campaign.lock_of_living(subject, expect)
    for subject in (MATRIX, JIT_LOAD):
        campaign.lock_of_dead(subject)
    for subject, expect in ALONE:
        campaign.network(subject, expect)
    campaign.network(JIT_LOAD)
    campaign.full_disk(MATRIX, "64k", NO_SPACE)
    campaign.read_only(MATRIX, READ_ONLY)
    campaign.full_disk(JIT_LOAD, "256k", "lltm.jit.load() could not build")
    campaign.read_only(JIT_LOAD, "cannot write to")
    # Of the channel alone there are gigabytes: that it goes on is shown by the signals.
    campaign.full_disk(CONDA, "64k", NO_SPACE, room=False)
    campaign.read_only(CONDA, READ_ONLY, room=False)
    for subject, share in SHARES:
        campaign.signals(subject, round(share * cases))


def planted(bug: str, subject: Subject) -> Subject:
    """A subject with a bug."""
    plant = [sys.executable, str(PLANTER), bug]
    return replace(subject, command=lambda folder: [*plant, *subject.command(folder)[1:]])


def outlived(campaign: Campaign, subject: Subject) -> None:
    """Signals to rows whose tests never end."""
    campaign.known[subject.name] = (None, 8.0)
    campaign.signals(replace(subject, environment=fakes(tests={"": "hang"}), first_s=3.0), 3)


# Which fault has to find a bug, in which program, and with which words. Two runs in a folder that
# nothing locks may both end well, or with 1 where both build into one place; rows pass either way.
PLANTS: tuple[tuple[str, Subject, Callable[[Campaign, Subject], None], str], ...] = (
    ("a process that outlives", MATRIX, outlived, "live on"),
    ("a half that is believed", MATRIX, lambda c, s: c.signals(s, 6), "half-written"),
    ("a full disk", MATRIX, lambda c, s: c.full_disk(s, "64k", NO_SPACE), "traceback"),
    ("no network", ALONE[1][0], lambda c, s: c.network(s, NOT_FETCHED), "traceback"),
    ("a lock", MATRIX, lambda c, s: c.lock_of_living(s, HELD), "-cpu: passed"),
)


def prove(scratch: Path, seed: int) -> Proof:
    """Plant a bug of each kind, which that kind of fault has to find."""
    found: dict[str, bool] = {}
    for bug, subject, attempt, words in PLANTS:
        campaign = Campaign(scratch, random.Random(seed), time.monotonic() + LIMIT_S)
        attempt(campaign, planted(bug, subject))
        if campaign.not_run:
            print(f"{bug}: not run: {campaign.not_run[0]}")
            continue
        found[bug] = any(words in line for line in campaign.findings)
        print(f"{bug}: the planted bug was {'found' if found[bug] else 'not found'}", flush=True)
    return Proof("faults", len(found), sum(found.values()))


def main() -> int:
    """The exit status is 0 where nothing, or with `--prove` every planted bug, was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=count, default=CASES, help="signals, over all programs")
    parser.add_argument("--prove", action="store_true", help="plant bugs, which must be found")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        if options.prove:
            proof = prove(scratch, options.seed)
            proof.write(commit=options.record)
            return proof.exit_status
        deadline = time.monotonic() + 60 * options.minutes
        campaign = Campaign(scratch, random.Random(options.seed), deadline)
        run(campaign, options.cases)
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
