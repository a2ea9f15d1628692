"""Change the sources one place at a time: `nox -s mutants -- --minutes 60 --seed 1`.

A mutant must make a test fail. The tests run once to find which of them reach which mutant; then
each mutant runs against those that reach it, a few of every function of tests first, and the living
against all. One that outlives them is a finding, unless survivors.toml says why it is no defect.
A test that fails without a mutant, too, is left out of every trial, and named. `--minutes` is the
time of all of it: what it does not suffice for is counted as not run. With `--resume` what is known
of unchanged sources and tests is kept. `--prove` takes the tests that kill some mutants away.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arguments import minutes, read_restrictable
from mutant_build import HOME, UNCHANGED, build
from mutant_choice import PARTS, Part, choose, explained
from mutant_survey import SUITES, check_undisturbed, survey
from mutant_trials import Kept, run
from record import Proof, Record
from torchproof.arguments import count

if TYPE_CHECKING:
    from mutations import Mutant

LEAST = 95.0


def record(options: argparse.Namespace, chosen: dict[int, Mutant], kept: Kept) -> Record:
    """The figures; survivors without a reason, and too many of them, are findings."""
    tried = {m.name: kept.outcomes[m.name] for m in chosen.values() if m.name in kept.outcomes}
    reasons = explained()
    alive = [name for name, found in tried.items() if found != "killed"]
    unexplained = [name for name in alive if name not in reasons]
    counted = len(tried) - (len(alive) - len(unexplained))
    killed = len(tried) - len(alive)
    share = round(100 * killed / max(counted, 1), 1)
    untried = len(chosen) - len(tried)
    findings = [f"{tried[name]}: {name}" for name in unexplained]
    if share < LEAST:
        findings.append(f"{share} % of the mutants die, at least {LEAST:g} % must")
    return Record(
        campaign="mutants",
        seed=options.seed,
        minutes=options.minutes,
        cases=len(tried),
        unit="mutants",
        findings=tuple(findings),
        not_run=tuple(
            [f"survives: {name}: {reasons[name]}" for name in alive if name in reasons]
            + [f"left out: {test}: it fails without a mutant" for test in sorted(kept.broken)]
            + ([f"{untried} of {len(chosen)} mutants: no time left"] if untried else [])
        ),
        figures={"killed": killed, "explained": len(alive) - len(unexplained), "killed (%)": share},
    )


@dataclass(frozen=True)
class Planted:
    """Mutants of a place that one file of tests kills and another cannot.

    Attributes:
        source: that is mutated; `function`: of it.
        with_tests, without: the files of tests.
    """

    source: str
    function: str
    with_tests: str
    without: str

    @property
    def part(self) -> Part:
        return Part((self.source,), 2)


AUDIT = "torchproof/src/torchproof/audit"
PLANTED = (
    Planted(
        "csrc/lltm_cell.inc",
        "backward",
        "tests/op/test_derivatives.py",
        "tests/op/test_errors.py",
    ),
    Planted("lltm/stream.py", "", "tests/op/test_stream.py", "tests/op/test_derivatives.py"),
    Planted(
        f"{AUDIT}/manylinux.py", "", "tests/audit/test_hostile.py", "tests/audit/test_against.py"
    ),
)


def prove(options: argparse.Namespace) -> Proof:
    """Take the tests away that kill some mutants, each of which must then be a finding."""
    numbered = itertools.count()
    chosen: dict[int, Mutant] = {}
    for place in PLANTED:
        found = choose(options.seed, [place.part], place.function).values()
        chosen |= zip(numbered, found, strict=False)
    chosen = build(chosen)
    noticed = set()
    for place in PLANTED:
        mine = {number: m for number, m in chosen.items() if m.file == place.source}
        noticed |= findings_of(mine, place.without, options)
        noticed -= findings_of(mine, place.with_tests, options)
    for mutant in chosen.values():
        print(f"{'found' if mutant.name in noticed else 'NOT FOUND'}: {mutant.name}")
    return Proof("mutants", sum(place.part.count for place in PLANTED), len(noticed))


def findings_of(chosen: dict[int, Mutant], tests: str, options: argparse.Namespace) -> set[str]:
    """The mutants that a campaign with one file of tests has as findings."""
    (name,) = {mutant.suite for mutant in chosen.values()}
    suite = replace(SUITES[name], surveyed=(tests,), whole=(tests,))
    surveyed = survey(name, suite, UNCHANGED[name], jobs=options.jobs)
    check_undisturbed(surveyed, UNCHANGED[name])
    kept = Kept(HOME / "prove", resume=False)
    run(chosen, {name: surveyed}, kept, math.inf, options.jobs)
    found = record(options, chosen, kept).findings
    return {m.name for m in chosen.values() if any(m.name in each for each in found)}


def main() -> int:
    """The exit status is 0 where enough die, or with `--prove` the missing test was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=60.0, help="of all of it")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=PARTS, action="append", help="some parts of the sources")
    parser.add_argument("--resume", action="store_true", help="keep what is known")
    parser.add_argument("--prove", action="store_true", help="take the tests away that kill one")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = read_restrictable(parser)
    if options.prove:
        proof = prove(options)
        print(proof.write(commit=options.record))
        return proof.exit_status
    end = time.monotonic() + 60 * options.minutes
    kept = Kept(HOME, resume=options.resume)
    parts = {name: PARTS[name] for name in options.only or PARTS}
    chosen = build(choose(options.seed, parts.values()), resume=options.resume)
    surveys = {
        name: survey(
            name, SUITES[name], UNCHANGED[name], jobs=options.jobs, resume=options.resume, end=end
        )
        for name in sorted({mutant.suite for mutant in chosen.values()})
    }
    for name, tests in surveys.items():
        if time.monotonic() < end:
            check_undisturbed(tests, UNCHANGED[name])
    run(chosen, surveys, kept, end, options.jobs)
    made = record(options, chosen, kept)
    print("\n".join([*made.findings, str(made.figures), str(made.write(commit=options.record))]))
    return 1 if made.findings else 0


if __name__ == "__main__":
    sys.exit(main())
