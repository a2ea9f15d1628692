"""The targets of the kernels, and how far a run is from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.runs.figures import CELLS, JAX, MODULES, OURS, SCALED_LSTM, STREAM, TUTORIAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.runs.figures import Entry, Row, Run

Value = Callable[["Row", "Entry"], "float | None"]
TRAINING_STEP, INFERENCE = "forward+backward", "inference"
CASES, WORKS, DTYPES, THREADS = 5, 4, 4, 2
"""Cases of the cell, and of the sequence."""
ROWS = 2 * CASES * WORKS * DTYPES * THREADS
SEQUENCE_LOOPS = ("premultiplied", "torchscript", *JAX)
"""Who must have run in a sequence's row for it to prove anything, and in a cell's torchscript."""


def _speed(row: Row, entry: Entry) -> float:
    return entry.speed.median


def _against_best(row: Row, entry: Entry) -> float | None:
    """Of the best other; none where one who races in the row did not run: a part is no proof."""
    names = SEQUENCE_LOOPS if row.op == "sequence" else ("torchscript",)
    # torch.compile unrolls a sequence, up to a minute each: it does so in float32 alone.
    if row.op == "cell" or row.dtype == "float32":
        names = (*names, "compile")
    speeds = [other.speed.median for name in names if (other := row.entry(name))]
    return entry.speed.median / max(1.0, *speeds) if len(speeds) == len(names) else None


def _of_blas(row: Row, entry: Entry) -> float | None:
    return entry.of_blas.median if entry.of_blas else None


def _of_fma(row: Row, entry: Entry) -> float | None:
    """A batch of one reads its weights once for each multiplication: no floor of arithmetic."""
    batch_of_one = row.case.split("x")[1:2] == ["1"]
    return entry.of_fma.median if entry.of_fma and not batch_of_one else None


def _against(name: str) -> Value:
    def value(row: Row, entry: Entry) -> float | None:
        other = row.entry(name)
        return entry.speed.median / other.speed.median if other else None

    return value


def _of_lstm(row: Row, entry: Entry) -> float | None:
    lstm = row.entry(SCALED_LSTM)
    return lstm.speed.median / entry.speed.median if lstm else None


def _of_compiler(row: Row, entry: Entry) -> float | None:
    """Of torch.compile's better mode; none where not both ran."""
    modes = [row.entry(name) for name in ("compile", "max-autotune")]
    speeds = [mode.speed.median for mode in modes if mode]
    return entry.speed.median / max(speeds) if len(speeds) == len(modes) else None


@dataclass(frozen=True)
class Target:
    """A bound on some rows.

    Attributes:
        work: the rows, in words.
        rows: which they are, by their fields.
        entries: the bindings meant; empty for any.
        unit: what `value` gives, in words.
        value: the figure; None where the row cannot tell.
        limit: the bound.
        at_least: whether it is one from below.
        count: how many rows there are.
        strict: whether the bound itself is a miss.
        kind: whose entries are meant.
    """

    work: str
    rows: Mapping[str, object]
    entries: tuple[str, ...]
    unit: str
    value: Value
    limit: float
    at_least: bool
    count: int = 1
    strict: bool = False
    kind: str = OURS

    @property
    def bound(self) -> str:
        """The bound in words."""
        word = "above" if self.strict else "at least" if self.at_least else "at most"
        return f"{word} {self.limit:.1f}"

    def met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        if self.strict:
            return value > self.limit
        return value >= self.limit if self.at_least else value <= self.limit


def _eager(case: str, work: str, limit: float, *entries: str) -> Target:
    op = "cell" if case.count("x") == 2 else "sequence"
    rows = {"op": op, "case": case, "work": work, "dtype": "float32"}
    words = f"{op} {case} {work}" + (f", {' '.join(entries)}" if entries else "")
    unit = "times as fast as eager"
    return Target(words, rows, entries, unit, _speed, limit, at_least=True, count=THREADS)


def _ahead(work: str, rows: Mapping[str, object], unit: str, value: Value, count: int) -> Target:
    return Target(
        work, rows, (), f"times as fast as {unit}", value, 1.0, True, count=count, strict=True
    )


SEQUENCES = {"op": "sequence", "work": TRAINING_STEP}
TARGETS = (
    _eager("16x32x128", "forward", 2.0, "native"),
    _eager("16x32x128", "forward", 1.4, "stable"),
    _eager("16x32x128", "backward", 1.4),
    _eager("16x32x128", "inference", 2.0),
    _ahead(
        "every row, four dtypes",
        {},
        "the best of eager, premultiplied, TorchScript, compile and JAX",
        _against_best,
        ROWS,
    ),
    *(
        _eager(case, TRAINING_STEP, limit)
        for case, limit in (
            ("64x16x32x128", 3.5),
            ("64x16x128x256", 2.0),
            ("64x1x256x512", 3.5),
            ("32x64x512x512", 1.7),
        )
    ),
    *(
        _ahead(
            f"every sequence {TRAINING_STEP}, {dtype}",
            {**SEQUENCES, "dtype": dtype},
            "nn.LSTM as it is",
            _against("lstm"),
            CASES * THREADS,
        )
        for dtype in ("float32", "bfloat16")
    ),
    *(
        Target(
            f"every sequence {TRAINING_STEP}{which}",
            {**SEQUENCES, "dtype": "float32"},
            (),
            f"time of the {floor} floor's",
            value,
            limit,
            at_least=False,
            count=count,
        )
        for which, floor, value, limit, count in (
            ("", "BLAS", _of_blas, 1.0, CASES * THREADS),
            (" where B > 1", "FMA", _of_fma, 1.5, (CASES - 1) * THREADS),
        )
    ),
    _ahead(
        f"every sequence {INFERENCE}, float32",
        {"op": "sequence", "work": INFERENCE, "dtype": "float32"},
        "ONNX Runtime's LSTM kernel",
        _against("onnxruntime"),
        CASES * THREADS,
    ),
    *(
        replace(
            _ahead(
                f"LLTMStream at one step, {dtype}",
                {"op": "cell", "work": INFERENCE, "dtype": dtype},
                unit,
                value,
                CASES * THREADS,
            ),
            kind=STREAM,
        )
        for dtype, unit, value in (
            ("float32", "ONNX Runtime's LSTM kernel", _against("onnxruntime")),
            ("float32", "the cell", _against("stable")),
        )
    ),
)


BINDINGS = ("stable", "native")
PRECISIONS, CUDA_SEQUENCES = 3, 5
CUDA_CELL = {"op": "cell", "case": "16x32x128"}


def _on_gpu(
    work: str, rows: Mapping[str, object], unit: str, value: Value, limit: float, count: int
) -> Target:
    return Target(work, rows, BINDINGS, unit, value, limit, at_least=True, count=count)


CUDA_TARGETS = (
    *(
        _on_gpu(
            f"cell 16x32x128 {work}",
            {**CUDA_CELL, "work": work},
            "times as fast as eager",
            _speed,
            2.0,
            PRECISIONS,
        )
        for work in ("forward", "backward")
    ),
    _on_gpu(
        "cell 16x32x128, float32 and tf32",
        CUDA_CELL,
        "times as fast as the tutorial's CUDA design",
        _against(TUTORIAL),
        1.0,
        WORKS * (PRECISIONS - 1),
    ),
    Target(
        "every sequence",
        {"op": "sequence"},
        BINDINGS,
        f"time of {SCALED_LSTM}",
        _of_lstm,
        1.0,
        at_least=False,
        count=CUDA_SEQUENCES * WORKS * PRECISIONS,
    ),
    *(
        _on_gpu(
            f"sequence {case}",
            {"op": "sequence", "case": case},
            "times as fast as torch.compile",
            _of_compiler,
            3.0,
            WORKS * PRECISIONS,
        )
        for case in ("64x16x32x128", "128x1x512x512")
    ),
)
"""On a GPU of Hopper's class."""


ROWS_OF_A_CELL = 6
"""Three shapes, inference and a training step."""
CELLS_ROWS = ROWS_OF_A_CELL * len(CELLS)


def _against_others(row: Row, entry: Entry) -> float | None:
    """Of the best other; none where JAX or torch's module did not run."""
    names = (*JAX, *([MODULES[row.op]] if row.op in MODULES else []))
    if any(row.entry(name) is None for name in names):
        return None
    return entry.speed.median / row.best_other.speed.median


CELLS_TARGETS = (
    Target(
        "every row",
        {},
        ("lltm.cells",),
        "times as fast as eager",
        _speed,
        2.0,
        at_least=True,
        count=CELLS_ROWS,
    ),
    _ahead(
        "every row",
        {},
        "the best of eager, JAX, torch's module, compile if run",
        _against_others,
        CELLS_ROWS,
    ),
    _ahead("lstm", {"op": "lstm"}, "nn.LSTM", _against("nn.LSTM"), ROWS_OF_A_CELL),
)


@dataclass(frozen=True)
class Outcome:
    """What a run says of a target.

    Attributes:
        target: the target.
        worst: the value furthest from the good; None where no row could tell.
        where: the row and binding of the worst.
        good: how many values met the bound.
        all: how many values there are.
        complete: whether every row was measured.
    """

    target: Target
    worst: float | None
    where: str
    good: int
    all: int
    complete: bool

    @property
    def reached(self) -> bool | None:
        """Whether every value met the bound; None where those that did are not all there are."""
        if self.good < self.all:
            return False
        return True if self.complete else None


def targets_of(run: Run) -> tuple[Target, ...]:
    """Those that a run of its kind is measured by."""
    if run.of_cells:
        return CELLS_TARGETS
    return CUDA_TARGETS if run.on_gpu else TARGETS


def outcomes(run: Run) -> Iterator[Outcome]:
    """Every target, in order."""
    for target in targets_of(run):
        found = list(_values(run, target))
        if not found:
            yield Outcome(target, None, "", 0, 0, complete=False)
            continue
        worst, row, entry = (min if target.at_least else max)(found)
        good = sum(target.met(value) for value, _, _ in found)
        complete = len({name for _, name, _ in found}) == target.count
        yield Outcome(target, worst, f"{row}, {entry}", good, len(found), complete)


def worst(runs: Mapping[str, Run]) -> Iterator[tuple[str, Outcome]]:
    """For every target, the record that is furthest from it, its outcome there, and its name.

    A record that has not measured a target is further than any figure: it proves nothing.
    """
    for of_target in zip(*(outcomes(run) for run in runs.values()), strict=True):
        yield max(zip(runs, of_target, strict=True), key=lambda pair: _distance(pair[1]))


def _distance(outcome: Outcome) -> tuple[int, float]:
    """Missed before not all measured before reached; then the figure."""
    order = {False: 2, None: 1, True: 0}[outcome.reached]
    return order, (-1 if outcome.target.at_least else 1) * (outcome.worst or 0.0)


def _values(run: Run, target: Target) -> Iterator[tuple[float, str, str]]:
    for row in run.rows:
        if any(getattr(row, key) != value for key, value in target.rows.items()):
            continue
        for entry in row.of_kind(target.kind):
            if target.entries and entry.name not in target.entries:
                continue
            value = target.value(row, entry)
            if value is not None:
                yield value, row.name, entry.name
