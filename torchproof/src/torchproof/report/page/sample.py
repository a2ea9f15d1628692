"""A made-up run that holds every kind of row, for looking at the page without an hour of tests."""

import dataclasses
from pathlib import Path
from typing import Any

from torchproof.files import kernels_hash, write_json
from torchproof.machine.sample_processors import AMX, ZEN4
from torchproof.report.proofs import Proof, ProvenRow, Record
from torchproof.rows.results import FAILED, NOT_RUN, PASSED, Counts, OracleError, Result, Speed

IN_USE = {
    "host": ("avx512", "AVX512", "AVX10.1 and AMX with bfloat16 and 8-bit integer support"),
    "avx2": ("avx2", "AVX2", "AVX2"),
}
SHA256 = "5f2b51cbab36a3e5" * 4
WHEEL = "decay-0.1.0-py3-none-linux_x86_64.whl"
TIMED = (("cell 16x32x128", 1.9), ("sequence 64x16x32x128", 2.4), ("sequence 64x1x256x512", 3.1))


def audit(name: str) -> dict[str, Any]:
    """An audit with a rule of each outcome."""
    return {
        "libraries": [
            {
                "name": f"{name}/decay/lib/libdecay.so",
                "findings": [
                    {
                        "rule": "glibc-ceiling",
                        "status": "passed",
                        "found": "GLIBC_2.14",
                        "expected": "at most 2.34",
                    },
                    {
                        "rule": "rpath",
                        "status": "failed",
                        "found": "/a/very/long/build/directory/that/must/not/widen/the/page/of/it",
                        "expected": "none",
                    },
                    {
                        "rule": "cuda-architectures",
                        "status": "not run",
                        "found": "",
                        "expected": "nothing declared",
                    },
                ],
            }
        ]
    }


def row(
    torch: str,
    python: str,
    binding: str = "stable",
    compiler: str = "g++-12",
    level: str = "host",
) -> Result:
    """A row that passed."""
    name = f"torch{torch}-py{python}-{binding}-{compiler}-cpu"
    name += f"-{level}" if level != "host" else ""
    return Result(
        id=name,
        torch=torch,
        python=python,
        binding=binding,
        compiler=compiler,
        cuda="cpu",
        packages="cpu" if torch == "2.13.0" else "stubbed",
        suite="core",
        tier="pr",
        reason_for_row="",
        key="sample",
        level=level,
        processor=AMX.to_json(),
        in_use={**dict(zip(("decay", "ATen", "oneDNN"), IN_USE[level], strict=True)), "MKL": None},
        status=PASSED,
        finished="2026-01-01T00:00:00+00:00",
        artifact={
            "name": f"{binding}-{compiler}-cpu",
            "torch": "2.13.0",
            "wheel": WHEEL,
            "sha256": SHA256,
            "bytes": 155_000,
            "seconds": 8.25,
            "path": WHEEL,
        },
        tests=Counts(1102, 0, 2, (), (("no CUDA device", 2),)),
        oracle=tuple(
            OracleError(backend, dtype, "odd sizes", ulp, 2.5)
            for backend, dtype, ulp in (
                ("fused", "float32", 1.75),
                ("fused", "float64", 2.0),
                ("fused", "bfloat16", 0.5),
                ("aten", "float32", 2.5),
            )
        ),
        speed=tuple(
            Speed(case, backend, "float32", 100.0 / ratio / factor, 100.0)
            for case, ratio in TIMED
            for backend, factor in (("fused", 1.0), ("aten", 0.6))
        ),
        audit=audit(WHEEL),
        seconds={"environment": 1.2, "build": 8.25, "tests": 31.0},
        logs={"tests": f"logs/{name}/tests.log"},
    )


def results() -> tuple[Result, ...]:
    """Rows that passed, failed and were not run."""
    passed = [row(t, p) for t in ("2.10.0", "2.13.0", "2.15.0") for p in ("3.11", "3.12", "3.13")]
    passed += [row("2.13.0", "3.11", b, c) for b in ("native",) for c in ("g++-12", "clang++-14")]
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
    current = Proof(
        commit="0123456789abcdef",
        date="2026-01-01",
        kernels=kernels_hash(),
        torch=("2.13.0",),
        python=("3.11",),
        compilers=("g++-12", "clang++-14"),
        bindings=("stable", "native"),
        levels={"host": 6, "avx2": 2},
        tests=9000,
        skipped=12,
        not_run={},
    )
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
    loads = ("every symbol is there", "")
    cells = [_cell(torch, "loads", "works", *loads) for torch in torches[1:]]
    cells.insert(0, _cell(torches[0], "aborts", "refuses", "undefined symbol: aoti", "no symbol"))
    wheels = [{"name": name, "cells": cells} for name in ("stable", "native-torch2.13")]
    write_json(folder / "grid.json", {"torches": torches, "wheels": wheels})


def _cell(torch: str, library: str, package: str, reason: str, message: str) -> dict[str, Any]:
    """A cell of the grid, in which both were to load."""

    def trial(outcome: str, predicted: str) -> dict[str, Any]:
        return {
            "predicted": predicted,
            "reason": reason,
            "outcome": outcome,
            "message": message,
            "name": "decay/libdecay.so",
        }

    return {
        "torch": torch,
        "as_predicted": library == "loads",
        "libraries": [trial(library, "loads")],
        "package": trial(package, "works"),
    }
