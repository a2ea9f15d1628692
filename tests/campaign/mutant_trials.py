"""What the tests make of each mutant, kept as it comes."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mutant_build import packages
from mutant_choice import digest, explained
from mutant_runs import LIMIT_S, NoTimeLeftError, fails
from mutant_survey import SUITES, Tests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mutations import Mutant

# What is added to a run for each second that its tests take, and the limit of a run of all the
# others, where one that takes longer says nothing.
SLACK, WHOLE_LIMIT_S = 10.0, 1800.0


@dataclass(frozen=True)
class Trial:
    """A mutant among the tests.

    Attributes:
        number: of the mutant; `mutant`: itself.
        tests: what they reach; `end`: of the campaign, on the monotonic clock.
    """

    number: int
    mutant: Mutant
    tests: Tests
    end: float

    def outcome(self) -> str:
        """``killed``, ``survived`` or ``unreached`` by the tests that reach it, a few first."""
        reaching = self.tests.reaching(self.number, self.mutant)
        if not reaching:
            return "unreached"
        few = self.tests.few(reaching)
        others = [name for name in reaching if name not in few]
        return "killed" if self.fails(few) or (others and self.fails(others)) else "survived"

    def fails(self, names: list[str]) -> bool:
        """Whether one of these tests kills it."""
        limit = LIMIT_S + SLACK * sum(map(self.tests.duration, names))
        folder = packages(self.mutant, self.number)
        return fails(names, folder, self.number, limit=limit, end=self.end)

    def outlives_all(self) -> bool:
        """Whether no other test kills it either."""
        every = SUITES[self.mutant.suite]
        folder = packages(self.mutant, self.number)
        limit = WHOLE_LIMIT_S
        return not fails(every, folder, self.number, limit=limit, end=self.end, hangs=False)


class Kept:
    """Outcomes in a file, for a run that goes on; safe to share between threads."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._file = folder / "outcomes.json"
        self._digest = digest()
        self._lock = threading.Lock()
        self.outcomes: dict[str, str] = {}
        if resume and self._file.is_file():
            document = json.loads(self._file.read_text(encoding="utf-8"))
            if document["digest"] == self._digest:
                self.outcomes = document["outcomes"]

    def add(self, mutant: Mutant, outcome: str) -> None:
        with self._lock:
            self.outcomes[mutant.name] = outcome
            document = {"digest": self._digest, "outcomes": self.outcomes}
            made = self._file.with_suffix(".new")
            made.write_text(json.dumps(document, indent=1), encoding="utf-8")
            made.replace(self._file)


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
            kept.add(trial.mutant, f"{found} all" if trial.outlives_all() else "killed")
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
