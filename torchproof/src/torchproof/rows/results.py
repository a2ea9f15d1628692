"""What came of a row: one JSON file each, written whole or not at all, read back by `--resume`."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from xml.etree import ElementTree

from torchproof.errors import TorchproofError
from torchproof.files import read_json, read_sealed, write_sealed
from torchproof.machine import processor
from torchproof.rows.combination import Combination
from torchproof.rows.plan import Placed, Row

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
# What a benchmark says of itself, and the backend that the others are held against.
EXTRA_INFO = ("op", "case", "dtype", "backend")
REFERENCE = "reference"


class BenchmarkError(TorchproofError):
    """A file of pytest-benchmark does not say what was timed."""


@dataclass(frozen=True)
class Counts:
    """The counts of a pytest run, and every test that failed or was skipped, with its reason."""

    passed: int
    failed: int
    skipped: int
    failures: tuple[str, ...] = ()
    skips: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class OracleError:
    """The largest error of one case against the oracle, in units in the last place."""

    backend: str
    dtype: str
    case: str
    ulp: float
    eager_ulp: float


@dataclass(frozen=True)
class Speed:
    """A backend's time beside eager PyTorch's, medians of one run in microseconds."""

    case: str
    backend: str
    dtype: str
    us: float
    eager_us: float

    @property
    def ratio(self) -> float:
        """How many times faster than eager."""
        return self.eager_us / self.us


@dataclass(frozen=True, kw_only=True)
class Result(Combination):
    """A row's outcome. `status`: passed, failed, not run; `reason` says why unless passed.

    `processor` is what it ran on, `in_use` what each library used of it, in the library's words;
    `libc` is the C library its Python started on, `emulator` what the processor was emulated by.
    """

    id: str
    packages: str
    tier: str
    reason_for_row: str
    key: str
    emulator: str = ""
    libc: str | None = None
    status: str = NOT_RUN
    reason: str = ""
    finished: str = ""
    artifact: dict[str, Any] | None = None
    tests: Counts | None = None
    oracle: tuple[OracleError, ...] = ()
    speed: tuple[Speed, ...] = ()
    audit: dict[str, Any] | None = None
    processor: dict[str, Any] | None = None
    in_use: dict[str, str | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The status, and what emulated the processor where it was not a real one."""
        emulated = self.emulator and self.status != NOT_RUN
        return f"{self.status}, emulated by {self.emulator}" if emulated else self.status

    @property
    def worst(self) -> OracleError | None:
        """The largest error against the oracle of a backend other than eager."""
        return max(self.oracle, key=lambda e: e.ulp, default=None)

    @property
    def largest_errors(self) -> tuple[OracleError, ...]:
        """The largest error against the oracle by dtype and backend, with eager's largest."""
        found: dict[tuple[str, str], OracleError] = {}
        for error in self.oracle:
            key = (error.dtype, error.backend)
            known = found.get(key, error)
            worst = max(known, error, key=lambda each: each.ulp)
            eager = max(known.eager_ulp, error.eager_ulp)
            found[key] = dataclasses.replace(worst, eager_ulp=eager)
        return tuple(found.values())

    @property
    def speedup(self) -> float | None:
        """The geometric mean of the fused backend's speed against eager over all cases."""
        ratios = [s.ratio for s in self.speed if s.backend == "fused"]
        return geometric_mean(ratios) if ratios else None


def write(folder: Path, result: Result) -> None:
    """Write a row's result."""
    write_sealed(folder / f"{result.id}.json", dataclasses.asdict(result))


def read(folder: Path, name: str) -> Result | None:
    """Read a row's result; None where there is none, or it is damaged or of an older form."""
    value = read_sealed(folder / f"{name}.json")
    if value is None:
        return None
    try:
        return from_json(value)
    except (KeyError, TypeError):
        return None


def from_json(value: Mapping[str, Any]) -> Result:
    """The result of which write() wrote these values."""
    tests = value["tests"]
    if tests is not None:
        skips = tuple((reason, count) for reason, count in tests["skips"])
        tests = Counts(**{**tests, "failures": tuple(tests["failures"]), "skips": skips})
    if value["processor"] is not None:
        processor.from_json(value["processor"])  # which the report reads; or KeyError, TypeError
    return Result(**{**value, "tests": tests, **measured(value)})


def measured(value: Mapping[str, Any]) -> dict[str, Any]:
    """The errors and speeds among the values of a result, or of a record's row."""
    return {
        "oracle": tuple(OracleError(**error) for error in value["oracle"]),
        "speed": tuple(Speed(**speed) for speed in value["speed"]),
    }


def begin(row: Row, key: str = "", on: dict[str, Any] | None = None) -> Result:
    """The result of a row before anything was run."""
    of_row = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    del of_row["line"]
    reason = of_row.pop("reason")
    return Result(id=row.id, reason_for_row=reason, key=key, processor=on, **of_row)


def kept(folder: Path, placed: Placed) -> Result:
    """The result an earlier run has kept for a row, here or on another machine."""
    known = read(folder, placed.row.id)
    if known is not None:
        return known
    damaged = (folder / f"{placed.row.id}.json").exists()
    reason = "no run of this row has been kept"
    if damaged:
        reason = "what was kept of this row is damaged or of an older form: run it again"
    return dataclasses.replace(begin(placed.row), reason=reason)


@dataclass(frozen=True)
class CaseResult:
    """A test of a pytest run; `reason` says why it failed or was skipped."""

    module: str
    name: str
    seconds: float
    status: str
    reason: str


def read_cases(path: Path) -> list[CaseResult] | None:
    """The tests in pytest's JUnit XML; None when the run ended before it was written."""
    try:
        # Of a pytest that this tool has started; expat itself limits the expansion of entities.
        return list(map(_case, ElementTree.parse(path).iter("testcase")))
    except (FileNotFoundError, ElementTree.ParseError):
        return None


def _case(case: ElementTree.Element) -> CaseResult:
    broken = [*case.findall("failure"), *case.findall("error")]
    skips = case.findall("skipped")
    status = FAILED if broken else NOT_RUN if skips else PASSED
    found = (broken or skips or [case])[0]
    reason = found.get("message") or ""
    if reason.startswith("collection "):  # why is in the last line of the text alone
        why = (found.text or "").rpartition("\n")[2].removeprefix("E ")
        reason += f": {why.strip()}"
    reason = " ".join(reason.split())[:300]
    name, module = case.get("name") or "", case.get("classname") or ""
    return CaseResult(module, name, float(case.get("time") or 0), status, reason)


def read_junit(path: Path) -> Counts | None:
    """The counts in pytest's JUnit XML; None when the run ended before it was written."""
    cases = read_cases(path)
    if cases is None:
        return None
    counts = Counter(case.status for case in cases)
    skips = Counter(case.reason or "no reason given" for case in cases if case.status == NOT_RUN)
    failed = (case for case in cases if case.status == FAILED)
    return Counts(
        passed=counts[PASSED],
        failed=counts[FAILED],
        skipped=counts[NOT_RUN],
        failures=tuple(f"{case.module}::{case.name}: {case.reason}" for case in failed),
        skips=tuple(skips.most_common()),
    )


def read_oracle(path: Path) -> tuple[OracleError, ...]:
    """The records the suite wrote; none when it did not run that far."""
    fields = [f.name for f in dataclasses.fields(OracleError)]
    return tuple(
        OracleError(**{name: record[name] for name in fields}) for record in read_json(path) or ()
    )


def read_benchmark(path: Path) -> tuple[Speed, ...]:
    """The speeds in pytest-benchmark's JSON: each backend beside eager, the reference.

    Raises:
        BenchmarkError: a benchmark does not say what it timed, or has nothing beside it.
    """
    document = read_json(path)
    if document is None:
        return ()
    timed = [_timed(benchmark) for benchmark in document["benchmarks"]]
    eager = {(one.case, one.dtype): one.us for one in timed if one.backend == REFERENCE}
    if alone := [one for one in timed if (one.case, one.dtype) not in eager]:
        one = alone[0]
        raise BenchmarkError(
            f"{one.case} in {one.dtype}: there is no benchmark with backend {REFERENCE!r} beside "
            f"{one.backend!r}"
        )
    return tuple(
        Speed(one.case, one.backend, one.dtype, one.us, eager[one.case, one.dtype])
        for one in timed
        if one.backend != REFERENCE
    )


@dataclass(frozen=True)
class _Timed:
    case: str
    dtype: str
    backend: str
    us: float


def _timed(benchmark: Mapping[str, Any]) -> _Timed:
    info = benchmark["extra_info"]
    if missing := [name for name in EXTRA_INFO if name not in info]:
        raise BenchmarkError(
            f"{benchmark['fullname']}: extra_info has no {missing[0]!r}; expected "
            f"{', '.join(EXTRA_INFO)}"
        )
    microseconds = 1e6 * benchmark["stats"]["median"]
    return _Timed(f"{info['op']} {info['case']}", info["dtype"], info["backend"], microseconds)
