"""A product and a difference that must be rounded once are, whatever CFLAGS say."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_support import library
from lltm import _compile, _processor, jit

if TYPE_CHECKING:
    from collections.abc import Sequence

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
constexpr bool kHasFma = LLTM_HAS_FMA;
#include "cpu/simd.h"
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


@pytest.mark.parametrize(
    "flags",
    [library.compile_arguments(windows=False), _compile.FLAGS, jit.FLAGS],
    ids=["setup.py", "lltm.cells", "lltm.jit"],
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_product_is_subtracted_exactly(level: str, flags: Sequence[str], tmp_path: Path) -> None:
    instructions, vector_bytes = LEVELS[level]
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"not run: there is no {compiler}")
    if level not in ("baseline", *_processor.read().instruction_sets):
        pytest.skip(f"not run: this processor has no {level}")
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM, encoding="utf-8")
    has_fma = level != "baseline" or platform.machine() != "x86_64"
    defines = [f"-DLLTM_VECTOR_BYTES={vector_bytes}", f"-DLLTM_HAS_FMA={has_fma:d}"]
    asked = ["-O2", "-ffp-contract=off", *instructions.split()]
    command = [compiler, *asked, *flags, "-std=c++17", f"-I{CSRC}", *defines, str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
    subprocess.run([str(tmp_path / "program")], check=True)
