"""What is proven on which processor: one small JSON each, in docs/proofs."""

import dataclasses
import datetime
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchproof import config
from torchproof.errors import TorchproofError
from torchproof.files import kernels_hash, write_json
from torchproof.machine import processor
from torchproof.machine.processor import Processor
from torchproof.rows.combination import Combination
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, OracleError, Result, Speed, measured

FOLDER = config.ROOT / "docs" / "proofs"
TIERS = ("local", "pr")
# Records, and what is made from them: they change no result.
RECORDS = ("docs/proofs", "docs/benchmarks", "docs/benchmarks.md", "README.md")

# What of a result is that of its row in a record.
OF_RESULT = (*(field.name for field in dataclasses.fields(Combination)), "emulator")


class Unrecordable(TorchproofError):
    """Why a run is no record, as one sentence."""


@dataclass(frozen=True, kw_only=True)
class Proven:
    """When: the commit of the sources, the date of the run, the hash of the kernels' sources."""

    commit: str
    date: str
    kernels: str

    @property
    def current(self) -> bool:
        """Whether the kernels are still those that were proven."""
        return self.kernels == kernels_hash()


@dataclass(frozen=True, kw_only=True)
class Proof(Proven):
    """A tier that has passed on a processor.

    Attributes:
        torch, python, compilers, bindings: what its rows have covered.
        levels: how many rows have passed at each level.
        tests: how many tests have passed in all rows; `skipped`: how many were skipped.
        not_run: the rows that this machine could not run, with the reason.
    """

    torch: tuple[str, ...]
    python: tuple[str, ...]
    compilers: tuple[str, ...]
    bindings: tuple[str, ...]
    levels: dict[str, int]
    tests: int
    skipped: int
    not_run: dict[str, str]

    @property
    def rows(self) -> int:
        """How many rows have passed."""
        return sum(self.levels.values())


@dataclass(frozen=True, kw_only=True)
class ProvenRow(Proven, Combination):
    """A row that has passed, whichever tier it was of.

    Attributes:
        emulator: what the processor was emulated by; "" for a real one.
        oracle: the largest errors by dtype and backend; `speed`: against eager, by case.
    """

    emulator: str
    oracle: tuple[OracleError, ...] = ()
    speed: tuple[Speed, ...] = ()

    @property
    def key(self) -> str:
        """All but the run: a newer run of the same takes its place."""
        return " ".join(getattr(self, field.name) for field in dataclasses.fields(Combination))


@dataclass(frozen=True)
class Record:
    """A processor, the tiers and rows that have passed on it; `in_use`: by level and library."""

    processor: Processor
    in_use: dict[str, dict[str, str | None]]
    tiers: dict[str, Proof]
    rows: tuple[ProvenRow, ...] = ()


def path(of: Processor) -> Path:
    """Where a processor's record is."""
    return FOLDER / f"{of.slug}.json"


def read(file: Path) -> Record | None:
    """A record; None where there is none."""
    if not file.is_file():
        return None
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        tiers = {tier: proof_from_json(proof) for tier, proof in value["tiers"].items()}
        # A row of an older form has no figures.
        stated = ({"oracle": (), "speed": (), **row} for row in value.get("rows", ()))
        rows = tuple(ProvenRow(**{**row, **measured(row)}) for row in stated)
        return Record(processor.from_json(value["processor"]), value["in_use"], tiers, rows)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise config.ConfigError(
            f"{file.name}: is no record of proofs ({error!r}): resolve the merge that it is in, "
            "restore it, or remove it and make it with `torchproof run --record`"
        ) from error


def proof_from_json(value: dict[str, Any]) -> Proof:
    """The proof of a tier that a record states."""
    lists = ("torch", "python", "compilers", "bindings")
    return Proof(**{**value, **{name: tuple(value[name]) for name in lists}})


def results(record: Record) -> list[Result]:
    """A record's rows as those of a run; which tests, artifacts and logs they had is not kept."""
    return [
        Result(
            **{field: getattr(row, field) for field in OF_RESULT},
            id=row.key.replace(" ", "-"),
            packages="",
            tier="",
            reason_for_row="",
            key="",
            status=PASSED,
            reason="" if row.current else f"at {row.commit[:7]}, older than the kernels",
            finished=row.date,
            oracle=row.oracle,
            speed=row.speed,
            processor=record.processor.to_json(),
            in_use=record.in_use.get(row.level, {}),
        )
        for row in record.rows
    ]


def read_all() -> tuple[Record, ...]:
    """Every processor's record, by title."""
    found = [read(file) for file in sorted(FOLDER.glob("*.json"))]
    records = [record for record in found if record is not None]
    return tuple(sorted(records, key=lambda record: record.processor.title))


def clean_commit() -> str:
    """The commit that the tree is at."""
    excluded = [f":(exclude){name}" for name in RECORDS]
    commit = _git("rev-parse", "HEAD").strip()
    # Whatever a user's configuration has git show of them; -z, as git quotes names otherwise.
    shown = ("-z", "--no-renames", "--untracked-files=normal")
    changed = _git("status", "--porcelain", *shown, "--", ".", *excluded).split("\0")[:-1]
    if changed:
        raise Unrecordable(
            f"--record: the tree differs from its commit in {changed[0][3:]}"
            f"{f' and {len(changed) - 1} more' if len(changed) > 1 else ''}; commit first"
        )
    return commit


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=config.ROOT,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        reason = next((line for line in lines if line.startswith("fatal: ")), lines[-1])
        raise Unrecordable(f"--record: git {arguments[0]}: {reason}; record from a clone")
    return done.stdout


def record(
    tier: str, results: Sequence[Result], on: Processor, commit: str, *, whole: bool = True
) -> Path:
    """Write which rows have passed on a processor, beside those of other runs; returns the file.

    `whole`: they are all rows of the tier, which has then passed, too.
    """
    failed = [result.id for result in results if result.status == FAILED]
    passed = [result for result in results if result.status == PASSED]
    if failed or not passed:
        what = f"{len(failed)} of {len(results)} rows failed" if failed else "no row passed"
        raise Unrecordable(f"--record: {what}, so nothing is recorded")
    file = path(on)
    known = read(file) or Record(on, {}, {})
    # What an emulated platform's libraries use is not this processor's.
    own = {result.level: result.in_use for result in passed if result.platform == config.HOME}
    rows = {row.key: row for row in (*known.rows, *(_row(result, commit) for result in passed))}
    both = Record(
        processor=on,
        in_use={**known.in_use, **own},
        tiers={**known.tiers, **({tier: _of(passed, results, commit)} if whole else {})},
        rows=tuple(rows[key] for key in sorted(rows)),
    )
    value = dataclasses.asdict(both) | {"processor": on.to_json()}
    write_json(file, value)
    return file


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def _row(result: Result, commit: str) -> ProvenRow:
    return ProvenRow(
        **{field: getattr(result, field) for field in OF_RESULT},
        commit=commit,
        date=_today(),
        kernels=kernels_hash(),
        oracle=result.largest_errors,
        speed=result.speed,
    )


def _of(passed: Sequence[Result], results: Iterable[Result], commit: str) -> Proof:
    levels: dict[str, int] = {}
    for result in passed:
        levels[result.level] = levels.get(result.level, 0) + 1
    counts = [result.tests for result in passed if result.tests]

    def covered(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(getattr(result, field)) for result in passed))

    return Proof(
        commit=commit,
        date=_today(),
        kernels=kernels_hash(),
        torch=covered("torch"),
        python=covered("python"),
        compilers=covered("compiler"),
        bindings=covered("binding"),
        levels=levels,
        tests=sum(count.passed for count in counts),
        skipped=sum(count.skipped for count in counts),
        not_run={result.id: result.reason for result in results if result.status == NOT_RUN},
    )
