"""Which tests reach which mutant: all of them run once, undisturbed."""

from __future__ import annotations

import collections
import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import coverage
from mutant_build import HOME
from mutant_choice import digest
from mutant_runs import UNDISTURBED, Suite, arguments, environment, run_until_failure
from record import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mutations import Mutant

# Tests of one function of tests, and of all, in a mutant's first run.
FEW_OF_EACH, FEW = 2, 40
# Of a file's tests beyond so many, the survey takes every fourth; a survivor meets all of them.
MANY, EVERY = 120, 4
SELECTED = "not subprocess and not compile and not distributed"
PACKAGES = "tests/packages/test_cells_package.py"
OP = tuple(
    f"tests/op/test_{name}.py"
    for name in (
        *("cells_define", "cells_sequence", "cells_drop_ins", "cells_modules"),
        *("cells_kernels", "cells_transforms", "containment", "functions"),
        *("derivatives", "determinism", "equivalence", "errors", "modules", "no_wasted_work"),
        *("overrides", "properties", "oracle", "raw_ops", "saved_memory", "sequence"),
        *("stream", "stream_memory", "threads", "torch_features", "tutorial", "broken_library"),
    )
)
AUDIT = tuple(
    f"tests/audit/test_{name}.py"
    for name in ("against", "cli", "elf", "facts", "hostile", "rules", "text")
)
# Of the whole first what kills most of those that the survey's tests do not. By file: pytest has an
# order of its own for a folder and files in it.
FIRST = (
    *(f"tests/op/test_cells_{name}.py" for name in ("define", "sequence", "drop_ins", "modules")),
    *("tests/op/test_cells_cuda.py", PACKAGES),
)
WHOLE = (
    *FIRST,
    *sorted({f"tests/op/{path.name}" for path in ROOT.glob("tests/op/test_*.py")} - {*FIRST}),
)
SUITES = {
    "op": Suite(ROOT, (*OP, PACKAGES), WHOLE, SELECTED),
    "audit": Suite(ROOT / "torchproof", AUDIT, ("tests",)),
}


@dataclass(frozen=True)
class Tests:
    """Which tests of a suite pass undisturbed, how long each takes, and what they reach."""

    suite: Suite
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


def survey(
    name: str, suite: Suite, path: Path, *, jobs: int, resume: bool = False, end: float = math.inf
) -> Tests:
    """Run the tests undisturbed, and note what each reaches; nothing where the time is over."""
    folder, ended = HOME / "reached" / name, f"{digest(name)} {path} {suite.surveyed}"
    done = folder / "done"
    if resume and done.is_file() and done.read_text(encoding="utf-8") == ended:
        return read_survey(suite, folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    measured = ("-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}")
    noted = {
        "COVERAGE_FILE": str(folder / "coverage"),
        "LLTM_REACHED_FOLDER": str(folder),
        "LLTM_REACHED_MANY": f"{MANY},{EVERY}",
    }
    plugins = ("-p", "reached", "-p", "keep_data")
    how = arguments(suite, suite.surveyed, *plugins, "-m", suite.selected, "-n", str(jobs))
    try:
        subprocess.run(
            [sys.executable, *measured, "-m", "pytest", *how],
            cwd=path,
            env={**os.environ, **environment(path), **noted},
            timeout=None if end == math.inf else max(1.0, end - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"no time left to see which mutants the tests of {name} reach", flush=True)
        return Tests(suite, {}, {}, {})
    done.write_text(ended, encoding="utf-8")
    return read_survey(suite, folder)


def read_survey(suite: Suite, folder: Path) -> Tests:
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
        suite,
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


def check_undisturbed(tests: Tests, path: Path) -> None:
    """In a fork, too, what passed in the survey passes, and the whole suite can be collected.

    Otherwise every mutant would seem killed.

    Raises:
        SystemExit: it does not, or nothing passed.
    """
    if not tests.seconds:
        raise SystemExit("no test passes without a mutant: see above")
    for names, options in (
        (tests.few(tests.seconds), ()),
        (tests.suite.whole, ("--collect-only",)),
    ):
        done = run_until_failure(tests.suite, names, path, UNDISTURBED, options=options)
        if done.failed:
            raise SystemExit(f"the tests fail without a mutant: {done.output[-3000:]}")
