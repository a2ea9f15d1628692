"""A level runs where the processor has more than it, and nothing in it may use more."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine
from torchproof.machine.levels import beyond, environment, unavailable_reason
from torchproof.machine.sample_processors import AMX, AVX512, ZEN4
from torchproof.rows.plan import expand, place, select

from torchproof import config

MATRIX = config.load()
HELD = [level for level in MATRIX.levels if not level.emulated]
PROCESSORS = {
    "AMX": AMX,
    "Zen 4": ZEN4,
    "AVX2": dataclasses.replace(ZEN4, family=23, instruction_sets=AVX512[:4]),
    "Arm": dataclasses.replace(AMX, vendor="Arm", instruction_sets=("neon", "sve")),
    "unknown": dataclasses.replace(AMX, vendor="unknown", instruction_sets=()),
}


@pytest.mark.parametrize(
    ("processor", "levels"),
    [
        ("AMX", {"avx512", "avx2", "baseline"}),
        ("Zen 4", {"avx2", "baseline"}),
        ("AVX2", {"baseline"}),
        ("Arm", set()),
        ("unknown", set()),
    ],
)
def test_the_local_tier_runs_the_levels_below_the_processor(
    processor: str, levels: set[str]
) -> None:
    python = Interpreter(Path("python"), "3.11.7")
    gcc = CompilerFound("g++", "12.2.0", Path("g++"))
    machine = Machine(python, (python,), (gcc,), gcc, gpu=False, processor=PROCESSORS[processor])
    placed = place(MATRIX, expand(MATRIX, "local"), machine)
    assert {p.row.level for p in placed if not p.missing} == {config.HOST, *levels}
    # What cannot run stays in the plan, with its reason.
    assert {p.row.level for p in placed} >= {level.name for level in HELD}
    assert all(p.row.level in p.missing for p in placed if p.missing)


def test_a_level_that_is_the_processors_own_is_not_run_twice() -> None:
    reason = unavailable_reason(MATRIX.level("avx512"), PROCESSORS["Zen 4"])
    assert reason == (
        "AMD Zen 4 has no amx_tile that the level avx512 would hold back: the rows at host ran at "
        "that level"
    )


def test_a_level_above_the_processor_names_what_is_missing() -> None:
    reason = unavailable_reason(MATRIX.level("avx512"), PROCESSORS["AVX2"])
    assert reason.startswith("the level avx512 needs avx512f, avx512bw,")


def test_levels_are_rows_of_their_own_names() -> None:
    rows = expand(MATRIX, "local")
    assert len({row.id for row in rows}) == len(rows)
    machine = Machine(Interpreter(Path("python"), "3.11.7"), (), (), None, gpu=False)
    kept = select(place(MATRIX, rows, machine), "level=avx2")
    assert {p.row.level for p in kept} == {"avx2"}


IN_USE = {
    "decay": "avx2",
    "ATen": "AVX2",
    "oneDNN": "AVX2",
    "MKL": "AVX2",
}


def test_what_is_held_is_not_beyond_the_level() -> None:
    assert beyond(MATRIX.level("avx2"), IN_USE) == {}
    assert beyond(MATRIX.level("avx2"), {**IN_USE, "MKL": None}) == {}
    assert beyond(None, {**IN_USE, "decay": "amx"}) == {}


@pytest.mark.parametrize(
    ("level", "report"),
    [
        ("avx512", "AVX10.1 and AMX with bfloat16 and 8-bit integer support"),
        ("avx512", "amx"),
        ("avx2", "avx512"),
        ("avx2", "AVX-512 with support of DL Boost and bfloat16"),
        ("avx2", "AVX 10.1"),
        ("baseline", "avx2"),
        ("baseline", "AVX2"),
    ],
)
def test_what_uses_more_is_beyond_the_level(level: str, report: str) -> None:
    assert beyond(MATRIX.level(level), {"oneDNN": report}) == {"oneDNN": report}


def test_every_level_holds_all_four_libraries() -> None:
    for level in HELD:
        assert set(environment(level)) == {
            "ATEN_CPU_CAPABILITY",
            "ONEDNN_MAX_CPU_ISA",
            "MKL_ENABLE_INSTRUCTIONS",
            "DECAY_CPU_CAPABILITY",
        }
