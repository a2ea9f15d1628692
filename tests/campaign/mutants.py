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
import collections
import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import built
import coverage
import mutations
import pytest
from record import ROOT, Record
from torch.utils import cpp_extension

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mutations import Mutant

HOME = ROOT / "build" / "mutants"
TABLE = Path(__file__).with_name("survivors.toml")
HERE = Path(__file__).parent
TORCHPROOF = ROOT / "torchproof" / "src"
# Every run is forked from a process that has imported what takes long.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["__main__", "numpy", "pytest", "torch", "torch.testing"])
INCLUDED = f"-include {HERE / 'mutant.h'}"
LEAST = 95.0
# Seconds of a run of the tests that reach a mutant, which it may make hang, and what is added for
# each of their own; of a run of all the others, where one that takes longer says nothing.
LIMIT_S, SLACK, WHOLE_LIMIT_S = 240.0, 10.0, 1800.0
TIMEOUT = 124
# pytest's status where it cannot find what it is asked to run.
NO_TESTS = 4
# Tests of one function of tests, and of all, in a mutant's first run.
FEW_OF_EACH, FEW = 2, 40
# Of a file's tests beyond so many, the survey takes every fourth; a survivor meets all of them.
MANY, EVERY = 120, 4
SELECTED = "not subprocess and not compile and not distributed"
OP = tuple(
    f"tests/op/test_{name}.py"
    for name in (
        *("cells", "containment", "derivatives", "determinism", "equivalence", "errors"),
        *("modules", "overrides", "properties", "oracle", "raw_ops", "saved_memory", "sequence"),
        *("stream", "stream_memory", "threads", "torch_features", "tutorial", "broken_library"),
    )
)
AUDIT = tuple(
    f"tests/test_{name}.py"
    for name in ("audit_against", "audit_cli", "audit_facts", "audit_hostile", "audit_rules")
)
SUITES = {"op": OP, "audit": AUDIT}


@dataclass(frozen=True)
class Part:
    """What is mutated, and how often."""

    sources: tuple[str, ...]
    count: int


PARTS = {
    "functor": Part(("csrc/lltm_cell.inc",), 10),
    "csrc/cpu": Part(("csrc/cpu/*",), 40),
    "csrc/host": Part(("csrc/host/*",), 40),
    "lltm": Part(("lltm/*.py", "lltm/cells/*.py"), 40),
    "audit": Part(("torchproof/src/torchproof/audit/**/*.py",), 40),
}


@dataclass(frozen=True)
class Tests:
    """Which tests pass undisturbed, how long each takes, and what they reach."""

    seconds: dict[str, float]
    mutants: dict[int, tuple[str, ...]]
    lines: dict[tuple[str, int], tuple[str, ...]]

    def reaching(self, number: int, mutant: Mutant) -> tuple[str, ...]:
        """Those that reach a mutant."""
        if mutant.file.startswith("csrc"):
            return self.mutants.get(number, ())
        return self.lines.get((mutant.file, mutant.line), ())

    def few(self, names: Iterable[str]) -> list[str]:
        """Some of each function of tests, the fastest first."""
        by_function: dict[str, list[str]] = collections.defaultdict(list)
        for name in names:
            by_function[name.split("[")[0]].append(name)
        some = [
            name
            for group in by_function.values()
            for name in sorted(group, key=self.duration)[:FEW_OF_EACH]
        ]
        return sorted(some, key=self.duration)[:FEW]

    def duration(self, name: str) -> float:
        """Of a test, in seconds; 0 where it was not surveyed."""
        return self.seconds.get(name, 0.0)


def table() -> dict[str, Any]:
    """Survivors with their reasons, and places that are not mutated with theirs."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def is_left_out(mutant: Mutant) -> bool:
    """Whether the table says that a place is not mutated."""
    return any(
        fnmatch(mutant.file, row["file"]) and fnmatch(mutant.function, row.get("function", "*"))
        for row in table()["left_out"]
    )


def choose(seed: int, parts: Iterable[Part], function: str = "") -> dict[int, Mutant]:
    """The mutants of a seed, numbered; of all functions, or of one."""
    chosen: list[Mutant] = []
    for part in parts:
        found = [
            mutant
            for pattern in part.sources
            for path in sorted(ROOT.glob(pattern))
            if path.suffix in (".h", ".cpp", ".inc", ".py")
            for mutant in mutations.find(path, path.relative_to(ROOT).as_posix())
            if function in ("", mutant.function) and not is_left_out(mutant)
        ]
        chosen += mutations.choose(found, part.count, seed)
    return dict(enumerate(chosen))


def build(chosen: dict[int, Mutant], *, resume: bool = False) -> dict[int, Mutant]:
    """Compile the C++ mutants in; those that the compiler takes, with all of Python's."""
    if all(mutant.suite == "audit" for mutant in chosen.values()):
        return chosen
    folder = HOME / "op"
    compiled = {number: m.name for number, m in chosen.items() if m.file.startswith("csrc")}
    taken, fresh = folder / "taken.json", f"{digest()} {sorted(compiled.items())}"
    if resume and taken.is_file():
        document = json.loads(taken.read_text(encoding="utf-8"))
        if document["digest"] == fresh:
            refused = compiled.keys() - document["taken"]
            return {number: m for number, m in chosen.items() if number not in refused}
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        tree = built.copy_sources(folder)
        for file in {m.file for m in chosen.values() if m.file.startswith("csrc")}:
            mine = {number: m for number, m in chosen.items() if m.file == file}
            path = tree / file
            path.write_bytes(mutations.schemata(path.read_bytes(), mine))
        refused = refused_lines(tree)
        left = {n: m for n, m in chosen.items() if (m.file, m.line) not in refused}
        if len(left) == len(chosen):
            break
        print(f"the compiler refuses {len(chosen) - len(left)} mutants", flush=True)
        chosen = left
    built.install(folder, "stable", INCLUDED)
    # What lltm.jit compiles has no mutants.
    shutil.rmtree(folder / "site" / "lltm" / "csrc")
    shutil.copytree(ROOT / "csrc", folder / "site" / "lltm" / "csrc")
    taken.write_text(json.dumps({"digest": fresh, "taken": sorted(chosen)}), encoding="utf-8")
    return chosen


def refused_lines(tree: Path) -> set[tuple[str, int]]:
    """The lines that are no C++ any more: a mutant may have another type, or must be constant."""
    command = [cpp_extension.get_cxx_compiler(), "-std=c++17", "-fsyntax-only", "-w"]
    command += [f"-I{folder}" for folder in cpp_extension.include_paths()]
    command += ["-DTORCH_TARGET_VERSION=0x020a000000000000", *INCLUDED.split()]
    refused = set()
    for source in (*sorted(tree.glob("csrc/cpu/*.cpp")), tree / "csrc/stable/binding.cpp"):
        done = subprocess.run(
            [*command, str(source)], cwd=tree, capture_output=True, text=True, check=False
        )
        found = re.findall(r"\b(csrc/[\w/.]+):(\d+):\d+: (?:fatal )?error", done.stderr)
        refused |= {(os.path.normpath(file), int(line)) for file, line in found}
    return refused


def arguments(tests: Iterable[str], path: Path, *options: str) -> list[str]:
    """For pytest, to run tests on the packages of a folder."""
    home = ROOT / "torchproof" if path == TORCHPROOF or "audit" in path.parts else ROOT
    listed = HOME / "lists" / f"{hashlib.sha256(repr((path, tests)).encode()).hexdigest()[:16]}.txt"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(f"{home}/{test}" for test in tests), encoding="utf-8")
    plain = ["-q", "-p", "no:cacheprovider", "--tb=line", "-c", str(home / "pyproject.toml")]
    return [*plain, "--rootdir", str(home), *options, f"@{listed}"]


def environment(path: Path) -> dict[str, str]:
    """For a process that imports the packages of a folder."""
    return {"PYTHONPATH": f"{path}{os.pathsep}{HERE}"}


def forked(args: list[str], path: Path, number: int, log: Path) -> None:
    """Run pytest in this process, a copy of one that has torch imported."""
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment(path), LLTM_MUTANT=str(number))
    os.chdir(path)
    sys.path[:] = [str(path), *(folder for folder in sys.path if folder != str(TORCHPROOF))]
    code = pytest.main(args)
    sys.stdout.flush()
    os._exit(code)


@dataclass(frozen=True)
class Ended:
    """A run of pytest: its status, TIMEOUT where it took too long, and what it printed."""

    code: int
    output: str


def run_forked(args: list[str], path: Path, number: int, limit: float) -> Ended:
    """Run pytest on a mutant; what it has started ends with it."""
    log = HOME / "logs" / f"{number}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = SERVER.Process(target=forked, args=(args, path, number, log))
    process.start()
    process.join(limit)
    code = TIMEOUT if process.is_alive() else process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return Ended(code, log.read_text(encoding="utf-8", errors="replace"))


def survey(name: str, path: Path, options: argparse.Namespace, end: float) -> Tests:
    """Run the tests undisturbed, and note what each reaches; nothing where the time is over."""
    folder, ended = HOME / "reached" / name, f"{digest()} {path}"
    done = folder / "done"
    if options.resume and done.is_file() and done.read_text(encoding="utf-8") == ended:
        return read_survey(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    measured = ("-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}")
    noted = {
        "COVERAGE_FILE": str(folder / "coverage"),
        "LLTM_REACHED_FOLDER": str(folder),
        "LLTM_REACHED_MANY": f"{MANY},{EVERY}",
    }
    selected = SELECTED if name == "op" else ""
    plugins = ("-p", "reached", "-p", "keep_data")
    how = arguments(SUITES[name], path, *plugins, "-m", selected, "-n", str(options.jobs))
    try:
        subprocess.run(
            [sys.executable, *measured, "-m", "pytest", *how],
            cwd=path,
            env={**os.environ, **environment(path), **noted},
            timeout=max(1.0, end - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"no time left to see which mutants the tests of {name} reach", flush=True)
        return Tests({}, {}, {})
    done.write_text(ended, encoding="utf-8")
    return read_survey(folder)


def read_survey(folder: Path) -> Tests:
    """What a survey has noted."""
    seconds: dict[str, float] = {}
    by_number: dict[int, list[str]] = collections.defaultdict(list)
    for test, noted in read_reached(folder):
        seconds[test] = noted["seconds"]
        for number in {*noted["mutants"], *noted["loaded"]}:
            by_number[number].append(test)
    lines: dict[tuple[str, int], set[str]] = collections.defaultdict(set)
    for part in folder.glob("coverage.*"):
        data = coverage.CoverageData(str(part))
        data.read()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                # What runs when it is imported, every test reaches.
                named = seconds if contexts == [""] else contexts
                lines[_in_repository(file), line] |= {name for name in named if name in seconds}
    return Tests(
        seconds,
        {number: tuple(sorted(tests)) for number, tests in by_number.items()},
        {at: tuple(sorted(tests)) for at, tests in lines.items()},
    )


def read_reached(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every test that passed, of all processes of a survey."""
    for path in folder.glob("tests-*.json"):
        for test, noted in json.loads(path.read_text(encoding="utf-8")).items():
            if noted.get("passed"):
                yield test, noted


def _in_repository(file: str) -> str:
    """The path of a measured file's source."""
    for site, source in (("/site/lltm/", "lltm/"), ("/torchproof/", "torchproof/src/torchproof/")):
        if site in file:
            return source + file.rpartition(site)[2]
    return file


def packages(mutant: Mutant, number: int) -> Path:
    """A folder whose packages are those of a mutant."""
    if mutant.file.startswith("csrc"):
        return HOME / "op" / "site"
    source = HOME / "op" / "site" if mutant.suite == "op" else TORCHPROOF
    folder = HOME / "python" / mutant.suite / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "lib", "csrc")
    package = "lltm" if mutant.suite == "op" else "torchproof"
    shutil.copytree(source / package, folder / package, ignore=ignored)
    if mutant.suite == "op":
        for name in ("lib", "csrc"):
            (folder / "lltm" / name).symlink_to(source / "lltm" / name)
        for made in source.glob("lltm-*.dist-info"):
            (folder / made.name).symlink_to(made)
    path = folder / mutant.file.removeprefix("torchproof/src/")
    path.write_bytes(mutations.mutate(path.read_bytes(), mutant))
    return folder


class NoTimeLeftError(Exception):
    """The campaign's time is over before a run has ended: it says nothing of its mutant."""


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


def check_undisturbed(tests: Tests, path: Path) -> None:
    """What passed in the survey passes in a fork, too, or every mutant would seem killed.

    Raises:
        SystemExit: it does not, or nothing passed.
    """
    if not tests.seconds:
        raise SystemExit("no test passes without a mutant: see above")
    done = run_forked(
        arguments(tests.few(tests.seconds), path, "-x", "-p", "no:xdist"), path, -1, LIMIT_S
    )
    if done.code:
        raise SystemExit(f"the tests fail without a mutant: {done.output[-3000:]}")


def fails(
    tests: Iterable[str],
    path: Path,
    number: int,
    *,
    limit: float = LIMIT_S,
    end: float = math.inf,
    hangs: bool = True,
) -> bool:
    """Whether a test fails on a mutant, or it ends the process, or they hang if that counts.

    Raises:
        NoTimeLeftError: the campaign's time was over first.
    """
    selected = ("-m", SELECTED) if "tests/op" in next(iter(tests)) else ()
    options = ("-x", "-p", "no:xdist", *selected)
    left = max(end - time.monotonic(), 0)
    done = run_forked(arguments(tests, path, *options), path, number, min(limit, left))
    if done.code == TIMEOUT and left < limit:
        raise NoTimeLeftError
    if done.code == NO_TESTS and "rror: " not in done.output:
        raise SystemExit(f"mutant {number}: no test was run: {done.output[-2000:]}")
    return done.code != 0 and (hangs or done.code != TIMEOUT)


def digest() -> str:
    """Of all that an outcome depends on."""
    files = [path for path in (ROOT / "csrc").rglob("*") if path.is_file()]
    for folder in ("lltm", "tests/op", "torchproof/src/torchproof/audit", "torchproof/tests"):
        files += (ROOT / folder).rglob("*.py")
    hashed = hashlib.sha256()
    for path in sorted(files):
        hashed.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()


class Kept:
    """Outcomes in a file, for a run that goes on."""

    def __init__(self, *, resume: bool) -> None:
        self._file = HOME / "outcomes.json"
        self._digest = digest()
        self.outcomes: dict[str, str] = {}
        if resume and self._file.is_file():
            document = json.loads(self._file.read_text(encoding="utf-8"))
            if document["digest"] == self._digest:
                self.outcomes = document["outcomes"]

    def add(self, mutant: Mutant, outcome: str) -> None:
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


def explained() -> dict[str, str]:
    """Survivors with their reasons."""
    return {row["mutant"]: row["why"] for row in table().get("survivor", ())}


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


def prove(seed: int) -> bool:
    """Whether mutants of the gradient survive once the tests of gradients are taken away."""
    functor = Part(PARTS["functor"].sources, 2)
    planted = build(choose(seed, [functor], "backward"))
    path = HOME / "op" / "site"
    well = bool(planted)
    for number, mutant in planted.items():
        killed = fails(["tests/op/test_derivatives.py"], path, number, limit=WHOLE_LIMIT_S)
        missed = not fails(["tests/op/test_errors.py"], path, number, limit=WHOLE_LIMIT_S)
        print(f"killed: {killed}; survives without the tests of gradients: {missed}: {mutant.name}")
        well = well and killed and missed
    return well


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
        return 0 if prove(options.seed) else 1
    end = time.monotonic() + 60 * options.minutes
    kept = Kept(resume=options.resume)
    parts = {name: PARTS[name] for name in options.only or PARTS}
    chosen = build(choose(options.seed, parts.values()), resume=options.resume)
    sites = {"op": HOME / "op" / "site", "audit": TORCHPROOF}
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
