"""The op's tests under the sanitizers: `nox -s sanitize -- --minutes 20 --seed 1`.

The libraries are built with a sanitizer in a folder of their own, and the tests run on them with
its runtime loaded first. `--prove` plants a bug for each sanitizer and requires that it is found.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import built
from arguments import minutes, read_restrictable
from record import ROOT, Proof, Record

TESTS = ROOT / "tests" / "op"
SELECTED = "not subprocess and not compile and not distributed"
UNSANITIZED = "lltm.cells compiles what it tests, without a sanitizer"
LEFT_OUT = {
    "test_broken_library": "it damages files, takes minutes with large ones, and calls no op",
    "test_cuda": "it needs a GPU, or compiles",
    "test_bounds": "it measures ulps, of which those of an optimized build count",
    "test_oracle": "it measures ulps, of which those of an optimized build count",
    "test_no_wasted_work": "it measures memory, which a sanitizer adds to",
    "test_saved_memory": "it measures memory, which a sanitizer adds to",
    "test_threads": "it measures processor time, of OpenMP's threads",
    "test_cells_define": UNSANITIZED,
    "test_cells_drop_ins": UNSANITIZED,
    "test_cells_modules": UNSANITIZED,
    "test_cells_sequence": UNSANITIZED,
}
"""Of the files of tests/op, those whose tests SELECTED would take; and why they cannot run here."""
ADDRESS = tuple(sorted({path.stem for path in TESTS.glob("test_*.py")} - LEFT_OUT.keys()))
# What calls lltm from several threads of Python.
THREADS = ("test_free_threading",)


@dataclass(frozen=True)
class Edit:
    """What to replace in which source."""

    source: str
    old: str
    new: str


@dataclass(frozen=True)
class Plant(Edit):
    """A bug, the file of tests that meets it, and what must be printed."""

    test: str
    finding: str


@dataclass(frozen=True)
class Variant:
    """A sanitizer, the binding and the changed sources it is built into, and what runs under it."""

    flags: str
    binding: str
    edits: tuple[Edit, ...]
    runtimes: tuple[str, ...]
    tests: tuple[str, ...]
    plant: Plant

    @property
    def name(self) -> str:
        return f"{self.flags.replace(',', '-')}-{self.binding}"


SCRATCH = "csrc/host/scratch.h"
GUARDED = (
    Edit(SCRATCH, "kKeptBytes = std::size_t{32} << 20", "kKeptBytes = 0"),
    Edit(SCRATCH, "kSystemBytes = std::size_t{1} << 20", "kSystemBytes = std::size_t{1} << 40"),
)
"""Every block comes from malloc: the end of a kept one, or of the system's, is not guarded."""
OVERFLOW = Plant(
    "csrc/host/cell.h",
    "const Scratch<T> joined(batch * width);",
    # A thread that keeps blocks has only larger ones then, whose end is further.
    "const int64_t n = batch * width;"
    "{ const Scratch<T> a(n), b(n), c(n), d(n), e(n), f(n), g(n), h(n); }"
    "const Scratch<T> joined(n - 1);",
    "test_raw_ops",
    "AddressSanitizer: heap-buffer-overflow",
)
NULL_COPY = Plant(
    "csrc/host/memory.h",
    "if (count > 0) std::memcpy",
    "std::memcpy",
    "test_raw_ops",
    "runtime error: null pointer passed as argument",
)
RACE = Plant(
    SCRATCH,
    "kept_.fetch_add(",
    "[] { static int plain = 0; return ++plain; }(), kept_.fetch_add(",
    "test_free_threading",
    "ThreadSanitizer: data race",
)
ASAN = ("libasan.so", "libubsan.so")
VARIANTS = (
    Variant("address,undefined", "stable", GUARDED, ASAN, ADDRESS, OVERFLOW),
    Variant("address,undefined", "native", GUARDED, ASAN, ADDRESS, NULL_COPY),
    Variant("thread", "stable", (), ("libtsan.so",), THREADS, RACE),
)


def environment(variant: Variant, site: Path) -> dict[str, str]:
    """For a Python whose lltm is the sanitized one."""
    compiler = os.environ.get("CXX", "c++")
    runtimes = []
    for name in variant.runtimes:
        asked = [compiler, f"-print-file-name={name}"]
        runtimes.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(path.strip() for path in runtimes),
        "PYTHONPATH": str(site),
        # Python and torch keep what they have until the process ends; a test asks for 2^53 bytes.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        # OpenMP's barriers are not seen, and would make every parallel kernel a race.
        "OMP_NUM_THREADS": "1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # A report names lltm's library or is not ours: torch and Python were built without.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:allocator_may_return_null=1:exitcode=66",
    }


def build(variant: Variant, folder: Path, plant: Plant | None = None) -> Path:
    """Build into a folder; where its packages are."""
    tree = built.copy_sources(folder)
    for edit in (*variant.edits, *([plant] if plant else [])):
        built.replace(tree / edit.source, edit.old, edit.new)
    flags = f"-fsanitize={variant.flags} -fno-sanitize-recover=all -fno-omit-frame-pointer"
    built.install(folder, variant.binding, flags, link=flags)
    return folder / "site"


def run(
    variant: Variant, site: Path, test: str, seconds: float
) -> subprocess.CompletedProcess[str]:
    """One file of tests; ended by its budget it has status 124."""
    # Without capture: a report that pytest took would go with the test that passed.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "-m", SELECTED, str(TESTS / f"{test}.py")]
    try:
        return subprocess.run(
            command,
            cwd=site,
            env=environment(variant, site),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as ended:
        output = ended.stdout.decode(errors="replace") if ended.stdout else ""
        return subprocess.CompletedProcess(command, 124, output)


@dataclass(frozen=True)
class Searched:
    """What a variant's search ran and found."""

    passed: int
    findings: tuple[str, ...]
    not_run: tuple[str, ...]


def tests_passed(output: str) -> int:
    """The tests that pytest's last line counts."""
    found = re.search(r"(\d+) passed", output)
    return int(found[1]) if found else 0


def search(variant: Variant, folder: Path, seconds: float, seed: int) -> Searched:
    """Run a variant's files in the seed's order until its budget ends."""
    site = build(variant, folder)
    tests = list(variant.tests)
    random.Random(seed).shuffle(tests)
    end, ran, passed = time.monotonic() + seconds, 0, 0
    findings: list[str] = []
    not_run: list[str] = []
    for test in tests:
        left = end - time.monotonic()
        done = run(variant, site, test, left) if left > 0 else None
        outcome = judge(done.returncode, done.stdout) if done else NO_TIME
        if outcome in (NO_TIME, NONE_SELECTED, ALL_SKIPPED):
            not_run.append(f"{variant.name}: {test}: {outcome}")
        elif done and outcome:
            print(done.stdout)
            findings.append(f"{variant.name}: {test} {outcome}")
        elif done:
            ran += 1
            passed += tests_passed(done.stdout)
    for line in (*findings, *not_run):
        print(line)
    print(f"{variant.name}: {ran} of {len(tests)} files, {passed} tests passed (seed {seed})")
    return Searched(passed, tuple(findings), tuple(not_run))


NO_TIME = "no time left"
NONE_SELECTED = "its tests compile, or start processes, that have no sanitizer"
ALL_SKIPPED = "every test of it was skipped"


def judge(status: int, output: str) -> str:
    """Why a run of pytest is none that passed; "" where it is one."""
    if status in (124, 5):
        return NO_TIME if status == 124 else NONE_SELECTED
    if status:
        return f"failed with {status}"
    return "" if tests_passed(output) else ALL_SKIPPED


def prove(variant: Variant, folder: Path, seconds: float) -> bool:
    """Whether a planted bug is found."""
    site = build(variant, folder / "planted", variant.plant)
    done = run(variant, site, variant.plant.test, seconds)
    found = variant.plant.finding in done.stdout
    if not found:
        print(done.stdout[-4000:])
    what = "found" if found else "did not find"
    print(f"{variant.name}: {what} the bug planted in {variant.plant.source}")
    return found


def main() -> int:
    """The exit status is 0 where nothing, or with `--prove` everything, was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=20.0, help="of tests, in all")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the files")
    parser.add_argument("--prove", action="store_true", help="plant a bug for each sanitizer")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    parser.add_argument("--only", choices=[v.name for v in VARIANTS], help="one variant")
    options = read_restrictable(parser)
    chosen = [v for v in VARIANTS if options.only in (None, v.name)]
    share = 60 * options.minutes / len(chosen)
    folders = {variant: ROOT / "build" / "sanitize" / variant.name for variant in chosen}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
    if options.prove:
        found = [prove(variant, folder, share) for variant, folder in folders.items()]
        proof = Proof("sanitize", len(found), sum(found))
        print(proof.write(commit=options.record))
        return proof.exit_status
    searched = [search(v, folder, share, options.seed) for v, folder in folders.items()]
    record = Record(
        campaign="sanitize",
        seed=options.seed,
        minutes=options.minutes,
        cases=sum(each.passed for each in searched),
        unit="tests under a sanitizer",
        findings=tuple(line for each in searched for line in each.findings),
        not_run=(
            *(f"{test}: {reason}" for test, reason in LEFT_OUT.items()),
            *(line for each in searched for line in each.not_run),
        ),
        figures={v.name: each.passed for v, each in zip(chosen, searched, strict=True)},
    )
    print(record.write(commit=options.record))
    return 0 if all(each.passed and not each.findings for each in searched) else 1


if __name__ == "__main__":
    sys.exit(main())
