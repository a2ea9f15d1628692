"""What the tests make of each mutant, kept as it comes."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mutant_build import UNCHANGED, packages
from mutant_choice import SOURCES, digest, explained
from mutant_runs import LIMIT_S, UNDISTURBED, Ended, NoTimeLeftError, run_until_failure
from mutations import suite_of
from torchproof.files import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mutant_survey import Tests
    from mutations import Mutant

# What is added to a run for each second that its tests take; and the limit of a run of the whole,
# after which the test that has not ended is tried alone.
SLACK, WHOLE_LIMIT_S = 10.0, 1800.0


@dataclass(frozen=True)
class Trial:
    """A mutant among the tests.

    Attributes:
        number: of the mutant; `mutant`: itself.
        tests: what they reach; `end`: of the campaign, on the monotonic clock.
        jit: whether what the tests compile has the mutant, too.
    """

    number: int
    mutant: Mutant
    tests: Tests
    end: float
    jit: bool = False

    def outcome(self) -> str:
        """``killed``, ``survived`` or ``unreached`` by the tests that reach it, a few first."""
        reaching = self.tests.reaching(self.number, self.mutant)
        if not reaching:
            return "unreached"
        few = self.tests.few(reaching)
        others = [name for name in reaching if name not in few]
        return "killed" if self.fails(few) or (others and self.fails(others)) else "survived"

    def outlives_all(self, kept: Kept) -> bool:
        """Whether no other test kills it either, of those that pass without a mutant."""
        met = set(self.tests.reaching(self.number, self.mutant))
        while True:
            left_out = frozenset(met | kept.broken.keys())
            ended = self.run(self.tests.suite.whole, limit=WHOLE_LIMIT_S, left_out=left_out)
            if not ended.failed:
                return True
            if not ended.begun:  # it cannot be imported
                return False
            met.update(ended.begun)
            suspect = ended.begun[-1]
            if self.fails([suspect]):
                if self.run([suspect], undisturbed=True).failed:
                    kept.leave_out(suspect, self.mutant.suite)
                else:
                    return False

    def fails(self, names: Sequence[str]) -> bool:
        """Whether one of these tests kills it."""
        return self.run(names).failed

    def run(
        self,
        names: Sequence[str],
        *,
        limit: float = 0.0,
        left_out: frozenset[str] = frozenset(),
        undisturbed: bool = False,
    ) -> Ended:
        """Run tests on it, or without it; by default for as long as they may take."""
        allowed = limit or LIMIT_S + SLACK * sum(map(self.tests.duration, names))
        if undisturbed:
            number, path = UNDISTURBED, UNCHANGED[self.mutant.suite]
        else:
            number, path = self.number, packages(self.mutant, self.number, jit=self.jit)
        suite = self.tests.suite
        return run_until_failure(
            suite, names, path, number, limit=allowed, end=self.end, left_out=left_out
        )


class Kept:
    """What is known of mutants, in a file for a run that goes on; safe to share between threads.

    Attributes:
        outcomes: by the names of mutants.
        broken: the tests that fail without a mutant, which say nothing of any, with their suites.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "outcomes.json"
        self._digests = {suite: digest(suite) for suite in SOURCES}
        self._lock = threading.Lock()
        self.outcomes: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        if resume and self._file.is_file():
            document = json.loads(self._file.read_text(encoding="utf-8"))
            same = [each for each, was in document["digests"].items() if was == self._digests[each]]
            found, broken = document["outcomes"], document["broken"]
            self.outcomes = {name: found[name] for name in found if suite_of(name) in same}
            self.broken = {test: broken[test] for test in broken if broken[test] in same}

    def add(self, mutant: Mutant, outcome: str) -> None:
        """Note a mutant's outcome."""
        with self._lock:
            self.outcomes[mutant.name] = outcome
            self._write()

    def leave_out(self, test: str, suite: str) -> None:
        """Note a test that fails without a mutant."""
        with self._lock:
            self.broken[test] = suite
            self._write()

    def _write(self) -> None:
        document = {"digests": self._digests, "outcomes": self.outcomes, "broken": self.broken}
        write_json(self._file, document)


def run(
    chosen: dict[int, Mutant], surveys: dict[str, Tests], kept: Kept, end: float, jobs: int
) -> None:
    """Run the mutants that have no outcome until the time is over; then the living on all tests."""

    def first(trial: Trial) -> None:
        if trial.mutant.name not in kept.outcomes:
            kept.add(trial.mutant, trial.outcome())
            count = f"{len(kept.outcomes)}/{len(chosen)}"
            print(f"{count} {kept.outcomes[trial.mutant.name]}: {trial.mutant.name}", flush=True)

    def then(trial: Trial) -> None:
        name = trial.mutant.name
        found = kept.outcomes.get(name)
        if found in ("survived", "unreached") and name not in explained():
            everywhere = replace(trial, jit=True)
            kept.add(trial.mutant, f"{found} all" if everywhere.outlives_all(kept) else "killed")
            print(f"{kept.outcomes[name]}, in the whole suite: {name}", flush=True)

    def try_one(step: Callable[[Trial], None], number: int, mutant: Mutant) -> None:
        tests = surveys[mutant.suite]
        if time.monotonic() < end:
            with contextlib.suppress(NoTimeLeftError):
                step(Trial(number, mutant, tests, end))

    for step in (first, then):
        with ThreadPoolExecutor(jobs) as pool:
            for each in [pool.submit(try_one, step, *item) for item in chosen.items()]:
                each.result()
