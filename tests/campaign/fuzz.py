"""Fuzz the raw ops and what reads strangers' files: `nox -s fuzz -- --minutes 10 --seed 1`.

The readers are fuzzed by coverage (torchproof/fuzz), the raw ops by structure against the reference
(tests/op/test_fuzz.py). What crashes a reader is kept in torchproof/tests/crashes, where a test
replays it. `--prove` plants a bug in each and requires that it is found.
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

from record import ROOT, Proof, Record

READERS = ROOT / "torchproof" / "fuzz" / "readers.py"
TARGETS = ("elf", "wheel", "matrix")
OPS = ROOT / "tests" / "op" / "test_fuzz.py"
# Those of its tests that take more cases while there is time.
SEARCHES = 6
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """What one target took."""

    name: str
    cases: int
    findings: tuple[str, ...]


def reader(target: str, seconds: int, seed: int, *options: str) -> Fuzzed:
    """Fuzz a reader of files."""
    command = [sys.executable, str(READERS), target, "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    counted = EXECUTED.search(done.stdout)
    findings: tuple[str, ...] = ()
    if done.returncode:
        print(done.stdout[-4000:])
        findings = (
            f"{target}: the reader ended with {done.returncode}: see torchproof/tests/crashes",
        )
    return Fuzzed(target, int(counted[1]) if counted else 0, findings)


def ops(seconds: float, seed: int) -> Fuzzed:
    """Fuzz the raw ops."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "cases")
        more = {"LLTM_FUZZ_SECONDS": str(seconds / SEARCHES), "LLTM_FUZZ_SEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", str(OPS)],
            env={**os.environ, **more, "LLTM_FUZZ_LOG": str(log)},
            cwd=folder,
            check=False,
        )
        cases = sum(map(int, log.read_text(encoding="utf-8").split())) if log.is_file() else 0
    findings = (f"ops: pytest ended with {done.returncode}",) if done.returncode else ()
    return Fuzzed("ops", cases, findings)


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
    selected = [str(OPS), "-k", "planted"]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *selected], check=False)
    print(f"ops: {'did not find' if done.returncode else 'found'} the planted bug")
    return Proof("fuzz", len(TARGETS) + 1, caught + (not done.returncode))


def main() -> int:
    """The exit status is 0 where nothing, or with `--prove` everything, was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prove", action="store_true", help="plant a bug in each target")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    share = int(60 * options.minutes / (len(TARGETS) + 1))
    if options.prove:
        proof = prove(share, options.seed)
        print(proof.write(commit=options.record))
        return proof.exit_status
    fuzzed = [reader(target, share, options.seed) for target in TARGETS]
    fuzzed.append(ops(share, options.seed))
    record = Record(
        campaign="fuzz",
        seed=options.seed,
        minutes=options.minutes,
        cases=sum(each.cases for each in fuzzed),
        unit="inputs",
        findings=tuple(line for each in fuzzed for line in each.findings),
        figures={each.name: each.cases for each in fuzzed},
    )
    print(record.write(commit=options.record))
    return 1 if record.findings else 0


if __name__ == "__main__":
    sys.exit(main())
