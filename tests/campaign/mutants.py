"""Change the sources one place at a time: `nox -s mutants -- --minutes 60 --seed 1`.

A mutant must make a test fail. The tests run once to find which of them reach which mutant; then
each mutant runs against those that reach it, a few of every function of tests first, and the living
against all. One that outlives them is a finding, unless survivors.toml says why it is no defect.
`--minutes` is the time of all of it: what it does not suffice for is counted as not run. With
`--resume` what is known of unchanged sources and tests is kept. `--prove` takes the tests that kill
two mutants away.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from mutant_build import HOME, SITE, TORCHPROOF, build
from mutant_choice import PARTS, Part, choose, explained
from mutant_runs import fails
from mutant_survey import check_undisturbed, survey
from mutant_trials import WHOLE_LIMIT_S, Kept, run
from record import Proof, Record

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
            + ([f"{untried} of {len(chosen)} mutants: no time left"] if untried else [])
        ),
        figures={"killed": killed, "explained": len(alive) - len(unexplained), "killed (%)": share},
    )


def prove(seed: int) -> Proof:
    """Take the tests of gradients away, which mutants of the gradient must then survive."""
    functor = Part(PARTS["functor"].sources, 2)
    planted = build(choose(seed, [functor], "backward"))
    found = 0
    for number, mutant in planted.items():
        killed = fails(["tests/op/test_derivatives.py"], SITE, number, limit=WHOLE_LIMIT_S)
        missed = not fails(["tests/op/test_errors.py"], SITE, number, limit=WHOLE_LIMIT_S)
        print(f"killed: {killed}; survives without the tests of gradients: {missed}: {mutant.name}")
        found += killed and missed
    return Proof("mutants", len(planted), found)


def main() -> int:
    """The exit status is 0 where enough die, or with `--prove` the missing test was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of all of it")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=PARTS, action="append", help="some parts of the sources")
    parser.add_argument("--resume", action="store_true", help="keep what is known")
    parser.add_argument("--prove", action="store_true", help="take the tests away that kill one")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    if options.prove:
        proof = prove(options.seed)
        print(proof.write(commit=options.record))
        return proof.exit_status
    end = time.monotonic() + 60 * options.minutes
    kept = Kept(HOME, resume=options.resume)
    parts = {name: PARTS[name] for name in options.only or PARTS}
    chosen = build(choose(options.seed, parts.values()), resume=options.resume)
    sites = {"op": SITE, "audit": TORCHPROOF}
    surveys = {
        name: survey(name, sites[name], options, end)
        for name in sorted({"audit" if name == "audit" else "op" for name in parts})
    }
    for name, tests in surveys.items():
        if time.monotonic() < end:
            check_undisturbed(tests, sites[name])
    run(chosen, surveys, kept, end, options.jobs)
    made = record(options, chosen, kept)
    print("\n".join([*made.findings, str(made.figures), str(made.write(commit=options.record))]))
    return 1 if made.findings else 0


if __name__ == "__main__":
    sys.exit(main())
