"""What a run came to: ratios of times of one round, their median and spread.

pytest-benchmark's JSON holds, for every entrant of a row, one time a round; the n-th times of a
row's entrants are of the same round.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchproof.errors import TorchproofError
from torchproof.files import kernels_hash
from torchproof.machine import processor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torchproof.machine.processor import Processor

OURS, STREAM, OTHER, LSTM, FLOOR = "ours", "stream", "other", "lstm", "floor"
EAGER = "eager"
BLAS, FMA = "blas floor", "fma floor"
FLOP, BYTE = "flop floor", "byte floor"
SCALED_LSTM = "lstm x 3/4"
TUTORIAL = "tutorial cuda"
# An LSTM has four gates, the LLTM three: this is what the same road would cost.
LSTM_SHARE = 3 / 4
OPS = ("cell", "sequence")
CELLS = ("lltm", "rnn_tanh", "rnn_relu", "lstm", "peephole_lstm", "gru", "slstm")
"""Those of lltm.cells: where they are raced, each is an op."""
MODULES = {"lstm": "nn.LSTM", "gru": "nn.GRU", "rnn_tanh": "nn.RNN", "rnn_relu": "nn.RNN"}
"""Torch's own, of the cells that it has."""
JAX = {"jax 1": 1, "jax 4": 4}
"""How many steps a turn of its loop has."""
COMPILE = "compile"
# Besides its entries' names, what identifies a row.
FIELDS = ("op", "case", "dtype", "threads", "work")


class BenchError(TorchproofError):
    """A run that cannot be made, read or compared."""


def _rounded(value: float) -> float:
    """Five digits: more than any run can tell, and a run of record that can be committed."""
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Figure:
    """A median over the rounds, and half the distance between the quartiles."""

    median: float
    spread: float

    @staticmethod
    def of(values: Sequence[float]) -> Figure:
        """The figure of one value a round."""
        if len(values) == 1:
            return Figure(_rounded(values[0]), 0.0)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Figure(_rounded(median), _rounded((high - low) / 2))

    @property
    def relative(self) -> float:
        """The spread as a part of the median."""
        return self.spread / self.median


@dataclass(frozen=True)
class Entry:
    """One entrant of a row.

    Attributes:
        name: competitor or floor.
        kind: OURS, STREAM, OTHER, LSTM or FLOOR.
        us: microseconds a call.
        speed: how many times faster than eager.
        of_blas: the time of ours in times of the bare matrix products.
        of_fma: the time of ours in times of the products at the peak rate.
        saved_bytes: what autograd keeps for the backward pass; None in inference.
        high_water_bytes: the most that is held at one time; None for a floor.
        compile_seconds: until the first result, beyond a later one; None where it was not measured.
    """

    name: str
    kind: str
    us: Figure
    speed: Figure
    of_blas: Figure | None = None
    of_fma: Figure | None = None
    saved_bytes: int | None = None
    high_water_bytes: int | None = None
    compile_seconds: float | None = None


@dataclass(frozen=True)
class Row:
    """Everyone on one problem."""

    op: str
    case: str
    dtype: str
    threads: int
    work: str
    rounds: int
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """Such as ``cell 16x32x128 float32 1 forward``."""
        return " ".join(str(getattr(self, field)) for field in FIELDS)

    def entry(self, name: str) -> Entry | None:
        """The entrant of that name; None where it did not take part."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def of_kind(self, *kinds: str) -> tuple[Entry, ...]:
        """The entrants of these kinds."""
        return tuple(entry for entry in self.entries if entry.kind in kinds)

    @property
    def best_other(self) -> Entry:
        """The fastest that computes the LLTM and is not ours."""
        return max(self.of_kind(OTHER), key=lambda entry: entry.speed.median)


@dataclass(frozen=True)
class Run:
    """A run of the benchmark.

    Attributes:
        hardware: what must be equal for two runs to be compared.
        software: what was timed, and on what it ran.
        made: when, ISO 8601.
        rows: its rows.
        kernels: the hash of the kernels' sources; empty where it was not kept.
    """

    hardware: dict[str, Any]
    software: dict[str, Any]
    made: str
    rows: tuple[Row, ...]
    kernels: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether it ran on a GPU."""
        return "gpu" in self.hardware

    @property
    def of_cells(self) -> bool:
        """Whether it raced the cells of lltm.cells, each an op of its own."""
        return any(row.op in CELLS for row in self.rows)

    @property
    def processor(self) -> Processor:
        """What its CPU was."""
        return processor.from_json(self.hardware["processor"])

    @property
    def current(self) -> bool:
        """Whether the kernels are still those that were timed."""
        return self.kernels == kernels_hash()

    def with_dtypes_of(self, kept: Run) -> Run:
        """Itself and the rows of dtypes that only a kept run of the same things has measured."""
        same = ("kernels", "hardware", "software")
        if any(getattr(self, name) != getattr(kept, name) for name in same):
            return self
        own = {row.dtype for row in self.rows}
        rows = (*(row for row in kept.rows if row.dtype not in own), *self.rows)
        return dataclasses.replace(self, rows=rows)

    def to_text(self) -> str:
        """JSON, a line for each fact and each row, without what is None: records have hundreds."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "rows")
        facts = ",\n".join(f'"{name}": {json.dumps(getattr(self, name))}' for name in names)
        rows = ",\n".join(json.dumps(_known(row)) for row in self.rows)
        return f'{{{facts},\n"rows": [\n{rows}\n]}}\n'


def _known(row: Row) -> dict[str, Any]:
    """A row and its entries without the fields that are None."""
    return dataclasses.asdict(
        row, dict_factory=lambda pairs: {name: value for name, value in pairs if value is not None}
    )


def from_text(text: str | bytes, source: str) -> Run:
    """The run that `to_text` wrote.

    Raises:
        BenchError: it is something else.
    """
    try:
        value = json.loads(text)
        rows = tuple(_row_from_json(row) for row in value["rows"])
        run = Run(**{**value, "rows": rows})
        processor.from_json(run.hardware["processor"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(
            f"{source} is not a run of `nox -s bench` (its bench.json): {error!r}; store a new one"
        ) from error
    return run


def _row_from_json(value: Mapping[str, Any]) -> Row:
    entries = []
    for entry in value["entries"]:
        figures = {
            name: Figure(**entry[name])
            for name in ("us", "speed", "of_blas", "of_fma")
            if entry.get(name)
        }
        entries.append(Entry(**{**entry, **figures}))
    return Row(**{**value, "entries": tuple(entries)})


def from_pytest_benchmark(documents: Sequence[Mapping[str, Any]]) -> Run:
    """One run of what several processes have measured.

    Args:
        documents: pytest-benchmark's JSON of each.
    """
    machine = documents[0]["machine_info"]
    gpu = dict(machine.get("gpu", {}))
    versions = {key: gpu.pop(key) for key in ("driver", "cuda", "cudnn", "kernels") if key in gpu}
    return Run(
        hardware=({"gpu": gpu.pop("name"), **gpu} if gpu else {})
        | {"processor": machine["processor"], "in_use": machine["instruction_sets_in_use"]},
        software={
            "lltm": machine["lltm"]["version"],
            "binding": machine["lltm"]["binding"],
            "compiler": machine["lltm"]["compiler"],
            "torch": machine["torch"],
            "python": machine["python_version"],
            **versions,
        },
        made=max(document["datetime"] for document in documents),
        rows=tuple(_rows(entry for document in documents for entry in document["benchmarks"])),
        kernels=kernels_hash(),
    )


def _rows(benchmarks: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for benchmark in benchmarks:
        info = benchmark["extra_info"]
        key = tuple(info[field] for field in (*FIELDS, "contest"))
        groups.setdefault(key, {})[info["competitor"]] = benchmark
    for (op, case, dtype, threads, work, _), group in groups.items():
        # Without eager there is nothing to hold the others against: its own test has failed.
        if EAGER in group:
            entries = tuple(_entries(group))
            rounds = len(group[EAGER]["stats"]["data"])
            yield Row(op, case, dtype, int(threads), work, rounds, entries)


def _entries(group: Mapping[str, Mapping[str, Any]]) -> Iterator[Entry]:
    seconds = {name: benchmark["stats"]["data"] for name, benchmark in group.items()}
    for name, benchmark in group.items():
        info = benchmark["extra_info"]
        yield _entry(name, info, seconds[name], seconds)
        if info["kind"] == LSTM:
            scaled = [LSTM_SHARE * time for time in seconds[name]]
            yield _entry(f"{name} x 3/4", info, scaled, seconds)


def _entry(
    name: str,
    info: Mapping[str, Any],
    own: Sequence[float],
    seconds: Mapping[str, Sequence[float]],
) -> Entry:
    ours = info["kind"] == OURS
    return Entry(
        name=name,
        kind=info["kind"],
        us=Figure.of([1e6 * time for time in own]),
        speed=Figure.of(_over(seconds[EAGER], own)),
        of_blas=Figure.of(_over(own, seconds[BLAS])) if ours and BLAS in seconds else None,
        of_fma=Figure.of(_over(own, seconds[FMA])) if ours and FMA in seconds else None,
        saved_bytes=info.get("saved_bytes"),
        high_water_bytes=info.get("high_water_bytes"),
        compile_seconds=_rounded(compiling) if (compiling := info.get("compile_seconds")) else None,
    )


def _over(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]
