// The CPU kernels for processors with AVX-512 (x86-64-v4).
#include "amx.h"
#include "kernel_sets.h"

#if defined(__x86_64__)
#define LLTM_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"
#define LLTM_VECTOR_BYTES 64
#define LLTM_KERNEL_SET kAvx512
#define LLTM_KERNEL_SET_NAME "avx512"
#if defined(LLTM_AMX)  // the same with tiles for bfloat16
#define LLTM_TILED_KERNEL_SET kAmx
#define LLTM_TILED_KERNEL_SET_NAME "amx"
#endif
#include "kernel_set.inc"
#endif
