"""What the compilers say of a kernel, read from their words, and what of it is a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torchproof.machine.inventory import Nvcc

from benchmarks.cuda_report import __main__ as report
from benchmarks.cuda_report import kernels
from benchmarks.cuda_report.kernels import Kernel, NotCompiled
from benchmarks.cuda_report.units import Unit, units
from lltm.cells import formulas
from torchproof import config

GATES = (
    "_ZN4lltm4cuda45_GLOBAL__N__ec475b75_8_gates_cu_a969f7f6_219315backward_kernelINS_8LltmCell"
    "INS0_10DeviceMathEEENS_3cpu4HalfELi8EEEvNS0_13GatesBackwardIT0_EE"
)
SUM = "_ZN4lltm4cuda12_GLOBAL__N_117column_sum_kernelINS_3cpu8BFloat16EfEEvllPKT_PT0_"
PTXAS = f"""
ptxas info    : Compiling entry function '{GATES}' for 'sm_90'
ptxas info    : Function properties for {GATES}
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 42 registers, used 0 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function '{SUM}' for 'sm_90'
ptxas info    : Function properties for {SUM}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 1024 bytes smem
"""
SASS = f"""
		Function : {GATES}
        /*0010*/    LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;  /* 0x0000000402047 */
                                                     /* 0x000fe20000000 */
        /*0020*/ @!P0 STG.E.EF.128 desc[UR4][R2.64], R4 ;  /* 0x0000000402047 */
        /*0030*/    LDG.E.U16 R4, desc[UR4][R2.64] ;  /* 0x0000000402047 */
        /*0040*/ @!UP1 LDS.128 R4, [R2] ;  /* 0x0000000402047 */
		Function : {SUM}
        /*0010*/    HMMA.16816.F32 R4, R8, R12, R4 ;  /* 0x0000000402047 */
        /*0020*/    STL [R1], R4 ;  /* 0x0000000402047 */
"""


def test_the_compilers_words_are_read() -> None:
    gates, column_sum = kernels.read(Unit(Path("gates.cu"), "LltmCell"), "sm_90", PTXAS, SASS)
    assert (gates.cell, gates.file) == ("LltmCell", "gates.cu")
    assert (gates.name, gates.registers, gates.spilled) == ("backward_kernel<Half, 8>", 42, 20)
    assert (gates.vector_loads, gates.vector_stores, gates.shared_vectors) == (1, 1, 1)
    assert gates.instructions["LDG.E.U16"] == 1
    assert gates.tensor_cores == 0
    assert column_sum.name == "column_sum_kernel<BFloat16, float>"
    assert (column_sum.registers, column_sum.shared, column_sum.tensor_cores) == (24, 1024, 1)


def kernel(file: str, name: str, spilled: int = 0, **instructions: int) -> Kernel:
    names = {key.replace("_", "."): count for key, count in instructions.items()}
    return Kernel("LstmCell", file, name, "sm_90", 40, spilled, 0, names)


@pytest.mark.parametrize(
    ("made", "faults"),
    [
        (kernel("gates.cu", "f<float, 4>", LDG_E_128=3, STG_E_128=2), []),
        (kernel("gates.cu", "f<float, 1>", LDG_E=3, STG_E=2), []),
        (kernel("gates.cu", "f<float, 4>", LDG_E_128=3, STG_E=2), ["it has no vector stores"]),
        (kernel("gates.cu", "f<float, 1>", spilled=8, LDL=1), ["8 bytes are spilled"]),
        (kernel("gates.cu", "f<float, 1>", LDL=1), ["1 accesses to local memory"]),
        (kernel("persistent.cu", "f<Half, 32>", LDG_E_128_STRONG_GPU=1, LDS_128=9), []),
        (kernel("persistent.cu", "f<Half, 32>", LDS_128=9), ["it has no vector loads"]),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else "",
)
def test_faults(made: Kernel, faults: list[str]) -> None:
    assert made.faults() == faults


def test_all_declared_architectures_are_compiled_for() -> None:
    for row in config.load().cuda:
        images = report.declared(row.version)
        assert {"sm_75", "sm_80", "sm_90"} <= set(images)
        assert sum(image.startswith("compute_") for image in images) == 1
    with pytest.raises(NotCompiled, match=r"CUDA 12\.6, .*, nvcc is of 11\.0"):
        report.declared("11.0")


def test_every_shipped_cell_is_compiled(tmp_path: Path) -> None:
    gates = [unit for unit in units(tmp_path) if unit.source.name == "gates.cu"]
    assert len({unit.cell for unit in gates}) == len(gates) == len(formulas.SHIPPED)
    for unit in gates:
        header = tmp_path / f"{unit.cell}.inc"
        assert f"struct {unit.cell} " in header.read_text(encoding="utf-8")
        named = {f"-DLLTM_CELL={unit.cell}", f'-DLLTM_CELL_HEADER="{header.name}"', f"-I{tmp_path}"}
        assert named <= set(unit.flags)


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: list[Kernel]
) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(report, "units", lambda folder: [Unit(tmp_path / "gates.cu", "LltmCell")])
    monkeypatch.setattr(kernels, "nvcc", lambda: Nvcc("13.0", "13.0.88", tmp_path))
    monkeypatch.setattr(kernels, "compiled", lambda unit, image: found)
    monkeypatch.setattr(report, "REPORT", tmp_path / "report.json")
    status = report.main(["--arch", "sm_90", "--jobs", "1"])
    return status, json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("spilled", "status"), [(0, 0), (4, 1)])
def test_a_spill_fails_the_session(
    spilled: int, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = kernel("gates.cu", "f<float, 1>", spilled)
    ended, document = run(monkeypatch, tmp_path, [made])
    assert ended == status
    assert len(document["faults"]) == status
    assert document["images"] == ["sm_90"]


def test_no_kernel_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, [])[0] == 1


def test_fewer_than_one_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        report.main(["--jobs", "0"])
    assert "argument --jobs: expected 1 or more, got 0" in capsys.readouterr().err


def test_without_nvcc_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert report.main([]) == 2
    assert "there is no nvcc; put it on PATH" in capsys.readouterr().out
