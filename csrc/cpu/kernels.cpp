// Which kernel set serves this processor.
#include "kernels.h"

#include <torch/headeronly/util/Exception.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "kernel_sets.h"

namespace lltm::cpu {
inline namespace LLTM_CELL {
namespace {

struct Candidate {
  const KernelSet* set;
  bool runs_here;
};

const KernelSet& choose() {
#if defined(LLTM_ONLY_KERNEL_SET)
  // Compiled for the processor it runs on: lltm.jit has asked torch which one that is.
  const Candidate candidates[] = {
#if defined(LLTM_ONLY_TILED_KERNEL_SETS) && defined(LLTM_BF16_TILES)
#if defined(__x86_64__)
      {&kAmx, bf16::TileInstructions::permitted() && bf16::DotProducts::permitted()},
      {&kAvx512Bf16, bf16::DotProducts::permitted()},
#else
      {&kNeonBf16, bf16::DotProducts::permitted()},
#endif
#endif
      {&LLTM_ONLY_KERNEL_SET, true}};
#elif defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const Candidate candidates[] = {
#if defined(LLTM_BF16_TILES)
      {&kAmx, avx512 && bf16::TileInstructions::permitted() && bf16::DotProducts::permitted()},
      {&kAvx512Bf16, avx512 && bf16::DotProducts::permitted()},
#endif
      {&kAvx512, avx512},
      {&kAvx2, avx2},
      {&kBaseline, true}};
#else
  const Candidate candidates[] = {
#if defined(LLTM_BF16_TILES)
      {&kNeonBf16, bf16::DotProducts::permitted()},
#endif
      {&kBaseline, true}};
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

int64_t reported_second_level_cache() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const int64_t found = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (found > 0) return found;
#endif
  return int64_t{1} << 20;
}

int64_t choose_second_level_cache() {
  const char* variable = std::getenv("LLTM_CPU_L2_BYTES");
  if (!variable || !*variable) return reported_second_level_cache();
  char* end = nullptr;
  errno = 0;  // strtoll takes what is out of range for the nearest number
  const int64_t wanted = std::strtoll(variable, &end, 10);
  STD_TORCH_CHECK(end != variable && *end == 0 && errno == 0 && wanted > 0,
                  "lltm: LLTM_CPU_L2_BYTES must be a number of bytes above 0, got ", variable);
  return wanted;
}

}  // namespace

int64_t second_level_cache() {
  static const int64_t bytes = choose_second_level_cache();
  return bytes;
}

const KernelSet& kernels() {
  // A size that is none is refused by whatever is called first, not by the first large product.
  static const KernelSet& chosen = (second_level_cache(), choose());
  return chosen;
}

}  // namespace LLTM_CELL
}  // namespace lltm::cpu
