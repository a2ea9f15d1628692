"""The processor is described from what Linux reports, and what is not reported is not guessed."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

import pytest
from torchproof.machine import processor
from torchproof.machine.processor import Processor

if TYPE_CHECKING:
    import re
    from pathlib import Path

X86 = """\
processor\t: {thread}
vendor_id\t: {vendor}
cpu family\t: {family}
model\t\t: {model}
model name\t: {name}
stepping\t: 1
flags\t\t: fpu sse sse2 ssse3 fma cx16 sse4_1 sse4_2 popcnt avx f16c rdrand {flags}
"""
ARM = """\
processor\t: {thread}
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes fphp asimdhp cpuid asimddp sve i8mm bf16 svei8mm svebf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""
AVX512 = "avx2 avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni avx512_bf16"
ZEN4 = {
    "vendor": "AuthenticAMD",
    "family": 25,
    "model": 17,
    "name": "AMD EPYC 9R14",
    "flags": f"hypervisor {AVX512}",
}
INTEL = {"vendor": "GenuineIntel", "family": 6, "model": 85}
SAPPHIRE_RAPIDS = {
    "vendor": "GenuineIntel",
    "family": 6,
    "model": 143,
    "name": "Intel(R) Xeon(R) Platinum 8488C",
    "flags": f"{AVX512} avx_vnni avx512_fp16 amx_bf16 amx_tile amx_int8",
}


def system(root: Path, block: str, threads: int = 2, **facts: object) -> Path:
    """A /proc/cpuinfo of that many threads, and no /sys."""
    path = root / "proc" / "cpuinfo"
    path.parent.mkdir()
    blocks = [block.format(thread=thread, **facts) for thread in range(threads)]
    path.write_text("\n".join(blocks) + "\n")
    return root


def with_sys(root: Path, siblings: list[str], *caches: tuple[int, str, str]) -> Path:
    """What /sys adds: the threads of each core, and the caches."""
    devices = root / "sys" / "devices" / "system" / "cpu"
    for thread, text in enumerate(siblings):
        topology = devices / f"cpu{thread}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{text}\n")
    for index, (level, kind, size) in enumerate(caches):
        folder = devices / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    return root


def test_zen_4(tmp_path: Path) -> None:
    root = with_sys(
        system(tmp_path, X86, threads=4, **ZEN4),
        ["0,2", "1,3", "0,2", "1,3"],
        (1, "Data", "32K"),
        (1, "Instruction", "32K"),
        (2, "Unified", "1024K"),
        (3, "Unified", "32M"),
    )
    found = processor.read(root, "x86_64")
    assert found == Processor(
        vendor="AMD",
        name="AMD EPYC 9R14",
        family=25,
        model=17,
        stepping=1,
        architecture="x86_64",
        cores=2,
        threads=4,
        caches={"L1d": 32 << 10, "L1i": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
        instruction_sets=(
            *("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512dq"),
            *("avx512vl", "avx512_vnni", "avx512_bf16"),
        ),
        virtual=True,
        emulated=False,
    )
    assert found.title == "AMD Zen 4"
    assert found.slug == "amd-zen-4"
    assert found.cache_sizes == "L1d 32 KiB, L1i 32 KiB, L2 1 MiB, L3 32 MiB"
    ice_lake = dataclasses.replace(found, caches={"L1d": 48 << 10, "L2": 1280 << 10})
    assert ice_lake.cache_sizes == "L1d 48 KiB, L2 1.25 MiB"
    assert found.details == (
        "AMD EPYC 9R14, family 25, model 17, stepping 1, 2 cores, virtual machine"
    )
    assert processor.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_sapphire_rapids(tmp_path: Path) -> None:
    found = processor.read(system(tmp_path, X86, **SAPPHIRE_RAPIDS), "x86_64")
    assert found.title == "Intel with AMX"
    assert found.instruction_sets[-4:] == ("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")
    assert not found.virtual


def test_a_neoverse(tmp_path: Path) -> None:
    found = processor.read(system(tmp_path, ARM, threads=64), "aarch64")
    assert found.title == "Arm Neoverse V1"
    assert (found.family, found.model, found.stepping, found.threads) == (8, 0xD40, 1, 64)
    assert {"neon", "sve", "bf16"} <= set(found.instruction_sets)


def test_an_unknown_arm_part_is_named_by_its_number(tmp_path: Path) -> None:
    root = system(tmp_path, ARM.replace("0xd40", "0xfff"))
    assert processor.read(root, "aarch64").title == "Arm part 0xfff"


def test_a_virtual_machine_that_hides_its_caches_has_none(tmp_path: Path) -> None:
    found = processor.read(system(tmp_path, X86, **ZEN4), "x86_64")
    assert (found.caches, found.cores, found.threads) == ({}, None, 2)
    assert found.virtual


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"family": 23, "model": 1, "flags": "avx2"}, "AMD Zen"),
        ({"family": 23, "model": 49, "flags": "avx2"}, "AMD Zen 2"),
        ({"flags": "avx2"}, "AMD Zen 3"),
        ({"family": 26}, "AMD Zen 5"),
        ({"family": 99}, "AMD with AVX-512"),
        ({**INTEL, "flags": "avx2 avx512f avx512vl"}, "Intel Skylake"),
        ({**INTEL, "flags": "avx2 avx512f avx512vl avx512_vnni"}, "Intel Cascade Lake"),
        (INTEL, "Intel Cooper Lake"),
        ({**INTEL, "flags": "avx2 avx512f"}, "Intel with AVX-512"),
        ({**INTEL, "flags": f"{AVX512} amx_tile"}, "Intel with AMX"),
        ({**INTEL, "model": 106, "flags": "avx2 avx512f avx512_vnni"}, "Intel Ice Lake"),
        ({**INTEL, "model": 167, "flags": "avx2 avx512f avx512_vnni"}, "Intel with AVX-512"),
        ({"vendor": "GenuineIntel", "flags": "avx2"}, "Intel with AVX2"),
        ({"vendor": "CentaurHauls", "flags": "", "name": "VIA"}, "VIA"),
    ],
)
def test_a_kind_is_known_by_family_and_instruction_sets(
    changes: dict[str, object], title: str, tmp_path: Path
) -> None:
    assert processor.read(system(tmp_path, X86, **{**ZEN4, **changes}), "x86_64").title == title


def test_an_arm_program_that_sees_another_processor_is_emulated(tmp_path: Path) -> None:
    found = processor.read(system(tmp_path, X86, **ZEN4), "aarch64")
    assert found.emulated
    assert found.title.endswith(", emulated")
    assert found.instruction_sets == ()


def test_qemus_own_processor_is_emulated(tmp_path: Path) -> None:
    facts = {**ZEN4, "name": "QEMU Virtual CPU version 2.5+"}
    assert processor.read(system(tmp_path, X86, **facts), "x86_64").emulated


def test_a_system_without_proc_has_a_name_and_threads(tmp_path: Path) -> None:
    found = processor.read(tmp_path, "arm64")
    assert found.title
    assert found.threads == os.cpu_count()
    assert (found.vendor, found.family, found.cores) == (processor.UNKNOWN, None, None)
    assert (found.caches, found.instruction_sets) == ({}, ())


MKL = (
    "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture {}, "
    "Lnx 2.60GHz lp64 gnu_thread\nMKL_VERBOSE SGEMM(N,N,1,1,1,0x7ffc,0x56,1) 12.11ms CNR:OFF\n"
)
ONEDNN = "onednn_verbose,v1,info,oneDNN v3.12.0\nonednn_verbose,v1,info,cpu,isa:{}\n"


@pytest.mark.parametrize(
    ("pattern", "text", "words"),
    [
        (
            processor.MKL,
            MKL.format(
                "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) with support for INT8, "
                "BF16, FP16 (limited) instructions, and Intel(R) Advanced Matrix Extensions "
                "(Intel(R) AMX) with INT8 and BF16"
            ),
            "AVX-512 with support for INT8, BF16, FP16 (limited) instructions, and AMX with INT8 "
            "and BF16",
        ),
        (
            processor.MKL,
            MKL.format(
                "Intel(R) Streaming SIMD Extensions 4.2 (Intel(R) SSE4.2) enabled processors"
            ),
            "SSE4.2",
        ),
        (processor.ONEDNN, ONEDNN.format("Intel AVX2"), "AVX2"),
        (
            processor.ONEDNN,
            "dnnl_verbose,info,cpu,isa:AArch64 SVE (256 bits)\n",
            "AArch64 SVE (256 bits)",
        ),
        (processor.ONEDNN, "", processor.UNKNOWN),
    ],
)
def test_the_libraries_words_are_kept_without_what_is_always_there(
    pattern: re.Pattern[str], text: str, words: str
) -> None:
    assert processor.words(pattern, text) == words


def test_what_torch_uses_is_read_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    found = processor.in_use()
    assert found["ATen"] == torch.backends.cpu.get_cpu_capability()
    for name, library in (("oneDNN", torch.backends.mkldnn), ("MKL", torch.backends.mkl)):
        assert (found[name] is not None) == library.is_available()
        assert found[name] != processor.UNKNOWN
