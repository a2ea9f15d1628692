// The CPU kernels for processors with AVX2 and FMA (x86-64-v3).
#include "kernel_sets.h"

#if defined(__x86_64__)
#define LLTM_TARGET "avx2,fma,f16c,bmi2"
#define LLTM_VECTOR_BYTES 32
#define LLTM_KERNEL_SET kAvx2
#define LLTM_KERNEL_SET_NAME "avx2"
#include "kernel_set.inc"
#endif
