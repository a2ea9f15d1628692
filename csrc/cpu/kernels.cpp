// Which kernel set serves this processor.
#include "kernels.h"

#include <cstdlib>
#include <cstring>

#include "kernel_sets.h"

namespace lltm::cpu {
namespace {

struct Candidate {
  const KernelSet* set;
  bool runs_here;
};

const KernelSet& choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const Candidate candidates[] = {{&kAvx512, avx512}, {&kAvx2, avx2}, {&kBaseline, true}};
#else
  const Candidate candidates[] = {{&kBaseline, true}};
#endif
  const char* wanted = std::getenv("LLTM_CPU_CAPABILITY");
  for (const Candidate& candidate : candidates) {
    if (!candidate.runs_here) continue;
    if (!wanted || !*wanted || std::strcmp(wanted, candidate.set->name) == 0) return *candidate.set;
  }
  return kBaseline;
}

}  // namespace

const KernelSet& kernels() {
  static const KernelSet& chosen = choose();
  return chosen;
}

}  // namespace lltm::cpu
