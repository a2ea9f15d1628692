// Which kernel set serves this processor.
#include "kernels.h"

#include <torch/headeronly/util/Exception.h>

#include <cstdlib>
#include <string>

#include "kernel_sets.h"

namespace lltm::cpu {
namespace {

struct Candidate {
  const KernelSet* set;
  bool runs_here;
};

const KernelSet& choose() {
#if defined(LLTM_ONLY_KERNEL_SET)
  // Compiled for the processor it runs on: lltm.jit has asked torch which one that is.
  const Candidate candidates[] = {
#if defined(LLTM_ONLY_TILED_KERNEL_SET) && defined(LLTM_AMX)
      {&LLTM_ONLY_TILED_KERNEL_SET, amx::permitted()},
#endif
      {&LLTM_ONLY_KERNEL_SET, true}};
#elif defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const Candidate candidates[] = {
#if defined(LLTM_AMX)
      {&kAmx, avx512 && amx::permitted()},
#endif
      {&kAvx512, avx512},
      {&kAvx2, avx2},
      {&kBaseline, true}};
#else
  const Candidate candidates[] = {{&kBaseline, true}};
#endif
  const char* variable = std::getenv("LLTM_CPU_CAPABILITY");
  const std::string wanted = variable ? variable : "";
  std::string here;
  for (const Candidate& candidate : candidates) {
    if (!candidate.runs_here) continue;
    if (wanted.empty() || wanted == candidate.set->name) return *candidate.set;
    here += (here.empty() ? "" : ", ") + std::string(candidate.set->name);
  }
  STD_TORCH_CHECK(false, "lltm: LLTM_CPU_CAPABILITY must be ", here,
                  " in this build on this processor, got ", wanted);
}

}  // namespace

const KernelSet& kernels() {
  static const KernelSet& chosen = choose();
  return chosen;
}

}  // namespace lltm::cpu
