"""The kernels' maths does not lean on a compiler that joins a product and a sum: some never do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lltm import _processor

CSRC = Path(__file__).parents[1] / "csrc"
# By instruction set: its flags, and the bytes of its vectors.
LEVELS = {
    "baseline": ("", 16),
    "avx2": ("-mavx2 -mfma -mf16c", 32),
    "avx512f": ("-mavx512f -mavx512bw -mavx512dq -mavx512vl", 64),
}
# (1 + 2^-n)^2 = 1 + 2^(1-n) + 2^-2n, of which the last term is rounded off.
PROGRAM = """
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>

#include "cpu/types.h"

namespace lltm::cpu {
namespace {
constexpr int kVectorBytes = LLTM_VECTOR_BYTES;
#include "cpu/simd.h"
#include "cpu/pair.h"
#include "cpu/vector_math.h"

template <class T>
bool exact(T ulps) {
  volatile T factor = 1 + ulps, sum = 1 + 2 * ulps;  // which the compiler does not compute with
  return minus_product(broadcast(sum), broadcast(factor), broadcast(factor))[0] == -ulps * ulps;
}
}  // namespace
}  // namespace lltm::cpu

int main() { return !(lltm::cpu::exact(0x1p-12f) && lltm::cpu::exact(0x1p-27)); }
"""


@pytest.mark.parametrize("flags", ["-O0", "-O2 -ffp-contract=off"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_product_is_subtracted_exactly(level: str, flags: str, tmp_path: Path) -> None:
    instructions, vector_bytes = LEVELS[level]
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"not run: there is no {compiler}")
    if level not in ("baseline", *_processor.read().instruction_sets):
        pytest.skip(f"not run: this processor has no {level}")
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM, encoding="utf-8")
    options = ["-std=c++17", "-Wno-psabi", f"-I{CSRC}", f"-DLLTM_VECTOR_BYTES={vector_bytes}"]
    command = [compiler, *options, *instructions.split(), *flags.split(), str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
    subprocess.run([str(tmp_path / "program")], check=True)
