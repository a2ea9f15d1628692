// The kernel sets there are, one per instruction set; kernels.cpp picks one.
#pragma once

#include "amx.h"
#include "kernels.h"

namespace lltm::cpu {

extern const KernelSet kBaseline;
#if defined(__x86_64__)
extern const KernelSet kAvx2;
extern const KernelSet kAvx512;
#endif
#if defined(LLTM_AMX)
extern const KernelSet kAmx;  // beside kAvx512, in its file
#endif

}  // namespace lltm::cpu
