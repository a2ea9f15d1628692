// The CPU kernels for every processor of this architecture: x86-64-v2, or NEON on aarch64.
#include "bf16_tiles.h"
#include "kernel_sets.h"

#if defined(__x86_64__)
#define LLTM_TARGET "sse4.2"
#endif
#define LLTM_VECTOR_BYTES 16
#define LLTM_KERNEL_SET kBaseline
#define LLTM_KERNEL_SET_NAME "baseline"
#if defined(LLTM_BF16_TILES) && defined(__aarch64__)
#define LLTM_TILED_KERNEL_SETS 1
#endif
#include "kernel_set.inc"
