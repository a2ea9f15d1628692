// The CPU kernels for processors with AVX-512 (x86-64-v4).
#include "bf16_tiles.h"
#include "kernel_sets.h"

#if defined(__x86_64__)
#define LLTM_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"
#define LLTM_VECTOR_BYTES 64
#define LLTM_KERNEL_SET kAvx512
#define LLTM_KERNEL_SET_NAME "avx512"
#if defined(LLTM_BF16_TILES)
#define LLTM_TILED_KERNEL_SETS 1
#endif
#include "kernel_set.inc"
#endif
