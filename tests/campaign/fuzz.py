"""Fuzz the raw ops and what reads strangers' files: `nox -s fuzz -- --minutes 10 --seed 1`.

The readers are fuzzed by coverage (torchproof/fuzz), the raw ops and those of three cells by
structure against float64 (tests/op/test_fuzz.py, test_fuzz_cells.py). What crashes a reader is
kept in torchproof/tests/crashes, where a test replays it. `--prove` plants a bug in each and
requires that it is found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from arguments import minutes
from record import ROOT, Proof, Record

READERS = ROOT / "torchproof" / "fuzz" / "readers.py"
TARGETS = ("elf", "wheel", "matrix")
OP = ROOT / "tests" / "op"
OPS = (OP / "test_fuzz.py", OP / "test_fuzz_cells.py")
# Those of their tests that take more cases while there is time; each logs what it took.
SEARCHES = 16
# Of nothing but luck would an op accept these.
ARBITRARY = "arbitrary"
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """What one target took."""

    name: str
    cases: int
    findings: tuple[str, ...]
    accepted: int = 0


def share(minutes: float) -> int:
    """The seconds of each target; of 0 libFuzzer makes no end."""
    return max(1, int(60 * minutes / (len(TARGETS) + 1)))


def reader(target: str, seconds: int, seed: int, *options: str) -> Fuzzed:
    """Fuzz a reader of files."""
    print(f"{target}: {seconds} seconds", flush=True)
    command = [sys.executable, str(READERS), target, "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        print(done.stdout[-4000:])
    return read_by(target, done.returncode, done.stdout)


def read_by(target: str, status: int, output: str) -> Fuzzed:
    """What a reader's exit status and output say."""
    counted = EXECUTED.search(output)
    cases = int(counted[1]) if counted else 0
    findings = []
    if status:
        findings.append(f"{target}: the reader ended with {status}: see torchproof/tests/crashes")
    elif not cases:
        findings.append(f"{target}: no case was run")
    return Fuzzed(target, cases, tuple(findings))


def ops(seconds: float, seed: int) -> Fuzzed:
    """Fuzz the raw ops."""
    print(f"ops: {seconds} seconds", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "cases")
        more = {"LLTM_FUZZ_SECONDS": str(seconds / SEARCHES), "LLTM_FUZZ_SEED": str(seed)}
        status = fuzz_ops(folder, **more, LLTM_FUZZ_LOG=str(log))
        return searched(status, log.read_text(encoding="utf-8") if log.is_file() else "")


def fuzz_ops(folder: str, *options: str, **environment: str) -> int:
    """Pytest's exit status, away from the sources: what is installed is fuzzed."""
    command = [sys.executable, "-m", "pytest", "-q", *map(str, OPS), *options]
    environ = {**os.environ, **environment}
    return subprocess.run(command, env=environ, cwd=folder, check=False).returncode


def searched(status: int, log: str) -> Fuzzed:
    """What pytest's exit status and the searches' lines (name, cases, accepted) say."""
    rows = [line.rsplit(maxsplit=2) for line in log.splitlines()]
    findings = [f"ops: pytest ended with {status}"] if status else []
    if len(rows) < SEARCHES and not status:
        findings.append(f"ops: {len(rows)} of {SEARCHES} searches ran")
    findings += [
        f"ops: no case of {name} was {'accepted' if int(cases) else 'run'}"
        for name, cases, accepted in rows
        if not int(cases) or not (int(accepted) or name.endswith(ARBITRARY))
    ]
    tried = sum(int(cases) for _, cases, _ in rows)
    return Fuzzed("ops", tried, tuple(findings), sum(int(accepted) for *_, accepted in rows))


def prove(seconds: int, seed: int) -> Proof:
    """Plant a bug in each reader, and in the ops."""
    caught = 0
    with tempfile.TemporaryDirectory() as crashes:
        for target in TARGETS:
            planted = reader(target, seconds, seed, "--planted", "--crashes", crashes)
            kept = list(Path(crashes, target).glob("crash-*"))
            found = bool(planted.findings and kept)
            print(f"{target}: {'found' if found else 'did not find'} the planted bug")
            caught += found
        missed = fuzz_ops(crashes, "-k", "planted")
    print(f"ops: {'did not find' if missed else 'found'} the planted bug")
    return Proof("fuzz", len(TARGETS) + 1, caught + (not missed))


def main() -> int:
    """The exit status is 0 where nothing, or with `--prove` everything, was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prove", action="store_true", help="plant a bug in each target")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    seconds = share(options.minutes)
    if options.prove:
        proof = prove(seconds, options.seed)
        print(proof.write(commit=options.record))
        return proof.exit_status
    fuzzed = [reader(target, seconds, options.seed) for target in TARGETS]
    fuzzed.append(ops(seconds, options.seed))
    record = Record(
        campaign="fuzz",
        seed=options.seed,
        minutes=options.minutes,
        cases=sum(each.cases for each in fuzzed),
        unit="inputs",
        findings=tuple(line for each in fuzzed for line in each.findings),
        figures={
            **{each.name: each.cases for each in fuzzed},
            "ops accepted": sum(each.accepted for each in fuzzed),
        },
    )
    print(record.write(commit=options.record))
    return 1 if record.findings else 0


if __name__ == "__main__":
    sys.exit(main())
