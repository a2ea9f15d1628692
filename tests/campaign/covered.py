"""Which lines the tests run: `nox -s coverage`, of Python with its branches and of C++.

lltm is built with gcov's counters, stable and native, and its tests run on that; the tests of
torchproof follow. Python is measured by coverage.py, with what the tests start. A function that no
test enters must be in not_covered.toml with its reason; build/coverage/missed.txt names every line
that no test runs. `--prove` plants a function in each language.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import built
from record import ROOT, Proof, Record
from torchproof.config import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = ROOT / "build" / "coverage"
TABLE = Path(__file__).with_name("not_covered.toml")
LEAST = 95.0
OP = ROOT / "tests" / "op"
TORCHPROOF = ROOT / "torchproof" / "tests"
# What calls every part; and then the kernels, in each lesser instruction set and natively.
STABLE = (
    *("broken_library", "capabilities", "cells", "cells_first_use", "cells_functor"),
    *("cells_kernels", "cells_random", "cells_transforms", "derivatives", "determinism", "errors"),
    *("functions", "installation", "jit", "modules", "overrides", "properties", "raw_ops"),
    *("saved_memory", "sequence", "stream", "stream_memory", "threads", "torch_features"),
    *("tutorial", "warnings"),
)
KERNELS = ("raw_ops", "sequence", "stream")
LESSER = ("baseline", "avx2")
NATIVE = (
    *("capabilities", "cells", "errors", "modules", "raw_ops", "sequence", "stream"),
    "torch_features",
)
LEFT_OUT = (
    # It finds what gcov writes beside the objects.
    "tests/op/test_jit.py::test_a_finished_build_is_used_where_nothing_can_be_written",
)
PYTHON = ("lltm", "torchproof")


@dataclass(frozen=True)
class Function:
    """A function that no test enters."""

    file: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}"


@dataclass(frozen=True)
class Measured:
    """What a part's tests run.

    Attributes:
        part: of the project.
        lines: how many there are, with branches for Python; `covered`: how many of them run.
        missed: functions that were never entered; `missed_lines`: by file, the most first.
        left_out: how many lines and branches are in sources that are not counted;
            `left_out_covered`: how many of them run.
    """

    part: str
    lines: int
    covered: int
    missed: tuple[Function, ...]
    missed_lines: dict[str, list[int]]
    left_out: int = 0
    left_out_covered: int = 0

    @property
    def percent(self) -> float:
        return share(self.covered, self.lines)

    @property
    def percent_of_all(self) -> float:
        """Of what is not counted, too."""
        return share(self.covered + self.left_out_covered, self.lines + self.left_out)


def share(covered: int, lines: int) -> float:
    """In percent."""
    return round(100 * covered / max(lines, 1), 1)


@dataclass(frozen=True)
class Excuse:
    """Why functions are not covered: patterns of a file and of their names."""

    file: str
    function: str
    why: str

    def covers(self, missed: Function) -> bool:
        return fnmatch(missed.file, self.file) and fnmatch(missed.name, self.function)


@dataclass(frozen=True)
class Away:
    """Sources that are not counted: nowhere, or where the processor has not what they need."""

    file: str
    why: str
    needs: str = ""


def table() -> dict[str, Any]:
    """not_covered.toml."""
    return read_toml(TABLE)


def excuses() -> list[Excuse]:
    """Why functions are not covered."""
    return [Excuse(**row) for row in table()["not_covered"]]


def run_tests(tests: list[str], site: Path | None, selected: str = "", **variables: str) -> int:
    """Run files of tests under coverage.py; pytest's exit status."""
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}"]
    command += ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["-p", "no:cacheprovider", "-p", "keep_data"]
    command += [*(["-m", selected] if selected else []), *tests]
    command += [f"--deselect={name}" for name in LEFT_OUT]
    data = HOME / "data" / "python"
    # What the tests compile, the kernels of cells, counts too; gcov finds it beside the rest.
    compiled = {}
    if site:
        folder = site.parent / "tree" / "build" / "compiled"
        compiled = {"CXX": str(counting_compiler()), "TORCH_EXTENSIONS_DIR": str(folder)}
    path = os.pathsep.join([*([str(site)] if site else []), str(Path(__file__).parent)])
    return subprocess.run(
        command,
        # Not the root, whose lltm would come before the one that is measured.
        cwd=site or ROOT / "torchproof",
        env={**os.environ, **compiled, **variables, "PYTHONPATH": path, "COVERAGE_FILE": str(data)},
        check=False,
    ).returncode


def counting_compiler() -> Path:
    """A C++ compiler that builds gcov's counters in."""
    program = HOME / "c++"
    program.write_text('#!/bin/sh\nexec g++ --coverage "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def build(binding: str, planted: bool = False) -> Path:
    """Build with gcov's counters; the site."""
    folder = HOME / binding
    tree = built.copy_sources(folder)
    if planted:
        with (tree / "csrc/cpu/kernels.cpp").open("a", encoding="utf-8") as file:
            file.write("namespace lltm::cpu {\nint never_called() { return 1; }\n}\n")
        with (tree / "lltm/reference.py").open("a", encoding="utf-8") as file:
            file.write("\n\ndef never_called() -> int:\n    return 1\n")
    built.install(folder, binding, "--coverage", link="--coverage")
    return folder / "site"


def read_python(sources: Path = ROOT) -> list[Measured]:
    """coverage.py's figures, by the sources of a folder."""
    data = {**os.environ, "COVERAGE_FILE": str(HOME / "data" / "python")}
    rc = f"--rcfile={ROOT / 'pyproject.toml'}"
    tool = [sys.executable, "-m", "coverage"]
    parts = [str(path) for path in (HOME / "data").glob("python.*")]
    subprocess.run(
        [*tool, "combine", "-q", "--keep", rc, *parts], cwd=sources, env=data, check=True
    )
    out = HOME / "python.json"
    subprocess.run([*tool, "json", "-q", rc, "-o", str(out)], cwd=sources, env=data, check=True)
    files = json.loads(out.read_text(encoding="utf-8"))["files"]
    found = []
    for package in PYTHON:
        folder = "lltm/" if package == "lltm" else "torchproof/src/"
        mine = {name: file for name, file in files.items() if name.startswith(folder)}
        counted = {name: file for name, file in mine.items() if not away(name)}
        if counted:
            left_out = [mine[name]["summary"] for name in mine.keys() - counted.keys()]
            found.append(measured_python(package, counted, left_out))
    return found


def count(summaries: list[dict[str, int]]) -> int:
    """Lines and branches."""
    return sum(each["num_statements"] + each["num_branches"] for each in summaries)


def count_covered(summaries: list[dict[str, int]]) -> int:
    """Those that run."""
    return sum(each["covered_lines"] + each["covered_branches"] for each in summaries)


def measured_python(
    package: str, files: dict[str, Any], left_out: list[dict[str, int]]
) -> Measured:
    """A package's figures, from coverage.py's of its files and of those that are not counted."""
    sums = [file["summary"] for file in files.values()]
    missed = [
        Function(name, function, entry["start_line"])
        for name, file in files.items()
        for function, entry in file["functions"].items()
        if function and entry["summary"]["num_statements"] and not entry["executed_lines"]
    ]
    return Measured(
        f"{package}, Python",
        count(sums),
        count_covered(sums),
        tuple(missed),
        most_first({name: file["missing_lines"] for name, file in files.items()}),
        count(left_out),
        count_covered(left_out),
    )


def most_first(missed: dict[str, list[int]]) -> dict[str, list[int]]:
    """Files with lines that do not run, the worst first."""
    rows = sorted(missed.items(), key=lambda row: -len(row[1]))
    return {file: sorted(lines) for file, lines in rows if lines}


def read_cxx(bindings: tuple[str, ...]) -> Measured:
    """gcov's figures of the sources, once for all the times that each was compiled."""
    lines: dict[tuple[str, int], int] = {}
    left_out: dict[tuple[str, int], int] = {}
    functions: dict[tuple[str, int], tuple[str, int]] = {}  # and their last lines
    for file in (file for binding in bindings for file in gcov(HOME / binding / "tree")):
        name = "csrc/" + os.path.normpath(file["file"].rpartition("csrc/")[2])
        if not (ROOT / name).is_file():
            continue
        counted = left_out if away(name) else lines
        for line in file["lines"]:
            at = (name, line["line_number"])
            counted[at] = max(counted.get(at, 0), line["count"])
        for function in file["functions"] if counted is lines else ():
            functions[name, function["start_line"]] = (
                function["demangled_name"],
                function["end_line"],
            )
    # By their lines: what was inlined was not entered.
    missed = tuple(
        Function(file, name, first)
        for (file, first), (name, last) in sorted(functions.items())
        if not any(lines.get((file, line), 0) for line in range(first, last + 1))
    )
    by_file: dict[str, list[int]] = collections.defaultdict(list)
    for (file, line), times in lines.items():
        if not times:
            by_file[file].append(line)
    return Measured(
        "C++",
        len(lines),
        sum(map(bool, lines.values())),
        missed,
        most_first(by_file),
        len(left_out),
        sum(map(bool, left_out.values())),
    )


def gcov(tree: Path) -> Iterator[dict[str, Any]]:
    """What gcov says of each file of each translation unit."""
    for counted in sorted((tree / "build").rglob("*.gcda")):
        command = ["gcov", "--json-format", "--stdout", "--demangled-names", counted.name]
        done = subprocess.run(
            command, cwd=counted.parent, capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            yield from json.loads(line)["files"]


def away(file: str) -> Away | None:
    """Why a source is not counted here; None where it is."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    rows = (Away(**row) for row in table()["away"])
    matching = (row for row in rows if fnmatch(file, row.file))
    return next((row for row in matching if not row.needs or row.needs not in flags), None)


def findings(measured: list[Measured], ended: dict[str, int]) -> list[str]:
    """Tests that failed, what is below the least, and what no reason is given for.

    Args:
        measured: the parts; ended: pytest's exit status, by the tests that ran.
    """
    known = excuses()
    found = [
        f"the tests of {tests} failed under the measurement (pytest's exit status {status})"
        for tests, status in ended.items()
        if status
    ]
    found += [
        f"{part.part}: {part.percent} % is covered, at least {LEAST:g} % must be"
        for part in measured
        if part.percent < LEAST
    ]
    found += [
        f"{function} is entered by no test, and not_covered.toml has no reason"
        for part in measured
        for function in part.missed
        if not any(excuse.covers(function) for excuse in known)
    ]
    return found


def figures(measured: list[Measured]) -> dict[str, float]:
    """Percentages without what is not counted, and with it."""
    found = {f"{part.part} (%)": part.percent for part in measured}
    for part in measured:
        if part.left_out:
            found[f"{part.part}, not counted"] = part.left_out
            found[f"{part.part} with what is not counted (%)"] = part.percent_of_all
    return found


def explained(measured: list[Measured]) -> Iterator[str]:
    """What is not covered, with its reason."""
    missed = [function for part in measured for function in part.missed]
    for row in table()["away"]:
        if away(row["file"]):
            yield f"{row['file']}: {row['why']}"
    for excuse in excuses():
        names = [str(function) for function in missed if excuse.covers(function)]
        if names:
            yield f"{', '.join(names)}: {excuse.why}"


def write_missed(measured: list[Measured]) -> Path:
    """Every line that no test runs, by file, the worst first."""
    path = HOME / "missed.txt"
    rows = [
        f"{file}: {', '.join(map(str, lines))}"
        for part in measured
        for file, lines in part.missed_lines.items()
    ]
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return path


def measure() -> tuple[list[Measured], dict[str, int]]:
    """Build, and run the tests of both bindings and of torchproof; with pytest's exit statuses."""
    selected = "not compile and not distributed"
    site = build("stable")
    op = [*of_op(STABLE), str(ROOT / "tests" / "packages" / "test_cells_package.py")]
    ended = {"the stable binding": run_tests(op, site, selected)}
    for level in LESSER:
        variables = {"LLTM_CPU_CAPABILITY": level}
        ended[f"the kernels of {level}"] = run_tests(of_op(KERNELS), site, **variables)
    ended["the native binding"] = run_tests(of_op(NATIVE), build("native"), selected)
    ended["torchproof"] = run_tests([str(TORCHPROOF)], None)
    return [*read_python(), read_cxx(("stable", "native"))], ended


def of_op(names: tuple[str, ...]) -> list[str]:
    """Files of tests."""
    return [str(OP / f"test_{name}.py") for name in names]


def prove() -> Proof:
    """Plant functions that nothing calls; to name one that is called is to find none."""
    site = build("stable", planted=True)
    run_tests(of_op(("modules",)), site)
    # The planted function is in the copy alone.
    sources = HOME / "stable" / "tree"
    listed = findings([*read_python(sources), read_cxx(("stable",))], {})
    planted = [line for line in listed if "never_called" in line]
    falsely = [line for line in listed if " kernels()" in line or "lltm_cell " in line]
    print("\n".join(planted))
    print(f"{len(planted)} of 2 planted functions found, {len(falsely)} named falsely")
    return Proof("coverage", 2, 0 if falsely else len(planted))


def main() -> int:
    """The exit status is 0 where enough is covered, or with `--prove` what is planted was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prove", action="store_true", help="plant functions that nothing calls")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/campaigns")
    options = parser.parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    (HOME / "data").mkdir(parents=True)
    started = time.monotonic()
    if options.prove:
        proof = prove()
        print(proof.write(commit=options.record))
        return proof.exit_status
    measured, ended = measure()
    print(f"lines that no test runs: {write_missed(measured)}")
    record = Record(
        campaign="coverage",
        seed=None,
        minutes=round((time.monotonic() - started) / 60, 1),
        cases=sum(part.lines for part in measured),
        unit="lines and branches",
        findings=tuple(findings(measured, ended)),
        not_run=tuple(explained(measured)),
        figures=figures(measured),
    )
    print(
        "\n".join([*record.findings, str(record.figures), str(record.write(commit=options.record))])
    )
    return 1 if record.findings else 0


if __name__ == "__main__":
    sys.exit(main())
