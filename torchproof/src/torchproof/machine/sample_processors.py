"""Two processors as their systems report them: for the sample page, and for tests."""

import dataclasses

from torchproof.machine.processor import Processor

AVX512 = (
    *("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx512_bf16",
)
AMX = Processor(
    vendor="Intel",
    name="Intel(R) Xeon(R) Platinum 8488C",
    family=6,
    model=143,
    stepping=8,
    architecture="x86_64",
    cores=2,
    threads=4,
    caches={"L1d": 48 << 10, "L1i": 32 << 10, "L2": 2 << 20, "L3": 105 << 20},
    instruction_sets=(*AVX512, "amx_tile"),
    virtual=True,
    emulated=False,
)
ZEN4 = dataclasses.replace(
    AMX,
    vendor="AMD",
    name="AMD EPYC 9R14",
    family=25,
    model=17,
    stepping=1,
    caches={"L1d": 32 << 10, "L1i": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
    instruction_sets=AVX512,
)
