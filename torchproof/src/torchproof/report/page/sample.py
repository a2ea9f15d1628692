"""A made-up run that holds every kind of row, for looking at the page without an hour of tests."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from torchproof.files import kernels_hash, write_sealed
from torchproof.machine.sample_processors import AMX, ZEN4
from torchproof.report.proofs import ProvenRow, Record, proof_from_json
from torchproof.rows.results import FAILED, NOT_RUN, Counts, Result, from_json

LIBRARIES = ("decay", "ATen", "oneDNN")
IN_USE = {
    "host": ("avx512", "AVX512", "AVX10.1 and AMX with bfloat16 and 8-bit integer support"),
    "avx2": ("avx2", "AVX2", "AVX2"),
}
# What does not differ between rows, records and cells.
SAMPLE: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def row(
    torch: str, python: str, binding: str = "stable", compiler: str = "g++-12", level: str = "host"
) -> Result:
    """A row that passed."""
    name = f"torch{torch}-py{python}-{binding}-{compiler}-cpu"
    name += f"-{level}" if level != "host" else ""
    of_row = {
        "id": name,
        "torch": torch,
        "python": python,
        "binding": binding,
        "compiler": compiler,
        "level": level,
        "packages": "cpu" if torch == "2.13.0" else "stubbed",
        "reason_for_row": "",
        "processor": AMX.to_json(),
        "in_use": {**dict(zip(LIBRARIES, IN_USE[level], strict=True)), "MKL": None},
        "artifact": {"name": f"{binding}-{compiler}-cpu", **SAMPLE["row"]["artifact"]},
        "logs": {"tests": f"logs/{name}/tests.log"},
    }
    return from_json({**SAMPLE["row"], **of_row})


def results() -> tuple[Result, ...]:
    """Rows that passed, failed and were not run."""
    passed = [row(t, p) for t in ("2.10.0", "2.13.0", "2.15.0") for p in ("3.11", "3.12", "3.13")]
    passed += [row("2.13.0", "3.11", "native", c) for c in ("g++-12", "clang++-14")]
    passed += [row("2.13.0", "3.11", level="avx2")]
    other = row("2.13.0", "3.11")
    emulated = dataclasses.replace(
        other,
        id=f"{other.id}-linux-aarch64",
        platform="linux-aarch64",
        emulator="qemu-user 10.0.13",
        processor={**AMX.to_json(), "title": "Arm Neoverse N1, emulated"},
        speed=(),
    )
    crashed = dataclasses.replace(
        row("2.9.1", "3.11", "native"),
        status=FAILED,
        reason="tests: a test ended its process with SIGABRT; 1 failed, first tests.test_x",
        tests=Counts(900, 1, 0, ("tests.test_equivalence::test_forward: crashed",), ()),
        speed=(),
    )
    absent = dataclasses.replace(
        row("2.15.0", "3.14"),
        in_use={},
        status=NOT_RUN,
        reason="no CPython 3.14 on this machine",
        artifact=None,
        tests=None,
        oracle=(),
        speed=(),
        audit=None,
        seconds={},
        logs={},
    )
    return (*passed, emulated, crashed, absent)


def records() -> tuple[Record, ...]:
    """Proofs of both processors, one older than the kernels."""
    current = proof_from_json({**SAMPLE["proof"], "kernels": kernels_hash()})
    stable = ProvenRow(
        torch="2.13.0",
        python="3.11",
        binding="stable",
        compiler="g++-12",
        cuda="cpu",
        platform="linux-x86_64",
        level="host",
        system="host",
        suite="full",
        emulator="",
        commit=current.commit,
        date=current.date,
        kernels=current.kernels,
    )
    emulated = dataclasses.replace(
        stable, platform="linux-aarch64", suite="core", emulator="qemu-user 10.0.13"
    )
    native = dataclasses.replace(stable, binding="native", suite="proof")
    aged = dataclasses.replace(stable, torch="2.15.0", python="3.12", kernels="of another day")
    fresh = dataclasses.replace(stable, torch="2.15.0", python="3.12", suite="core")
    older = dataclasses.replace(current, kernels="of another day", torch=("2.10.0", "2.15.0"))
    in_use: dict[str, dict[str, str | None]] = {
        level: {"decay": level if level != "host" else "avx512"} for level in current.levels
    }
    return (
        Record(AMX, in_use, {"local": current}, (stable, emulated, native)),
        Record(ZEN4, in_use, {"local": older, "pr": older}, (aged, fresh)),
    )


def write(folder: Path) -> None:
    """The files a page links to: logs and a cross-load grid."""
    for result in results():
        for path in result.logs.values():
            log = folder / path
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("1102 passed in 31.00s <&>\n" * 40, encoding="utf-8")
    torches = ["2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
    cells = [{"torch": torch, **SAMPLE["loads"]} for torch in torches[1:]]
    cells.insert(0, {"torch": torches[0], **SAMPLE["aborts"]})
    wheels = [{"name": name, "cells": cells} for name in ("stable", "native-torch2.13")]
    write_sealed(folder / "grid.json", {"torches": torches, "wheels": wheels})
