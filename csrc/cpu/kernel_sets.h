// The kernel sets there are, one per instruction set; kernels.cpp picks one.
#pragma once

#include "bf16_tiles.h"
#include "kernels.h"

namespace lltm::cpu {

extern const KernelSet kBaseline;
#if defined(__x86_64__)
extern const KernelSet kAvx2;
extern const KernelSet kAvx512;
#endif
#if defined(LLTM_BF16_TILES)  // kAvx512 with products of bfloat16 in tiles, in its file
extern const KernelSet kAvx512Bf16;
extern const KernelSet kAmx;
#endif

}  // namespace lltm::cpu
