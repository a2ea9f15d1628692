// The kernel sets there are, one per instruction set; kernels.cpp picks one.
#pragma once

#include "bf16_tiles.h"
#include "kernels.h"

namespace lltm::cpu {
inline namespace LLTM_CELL {

extern const KernelSet kBaseline;
#if defined(__x86_64__)
extern const KernelSet kAvx2;
extern const KernelSet kAvx512;
#endif
#if defined(LLTM_BF16_TILES)  // with products of bfloat16 in tiles
#if defined(__x86_64__)       // kAvx512, in its file
extern const KernelSet kAvx512Bf16;
extern const KernelSet kAmx;
#else  // kBaseline, in its file
extern const KernelSet kNeonBf16;
#endif
#endif

}  // namespace LLTM_CELL
}  // namespace lltm::cpu
