// The machine's peak rate of fused multiply-adds, measured: independent chains in registers, no memory.
// Compiled for the processor it runs on, so that it uses the widest instructions there are.
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

// To the optimiser, a value that is read and changed while it stays in a vector register.
#if defined(__aarch64__)
#define KEPT "+w"
#else
#define KEPT "+v"
#endif

namespace {

constexpr int kBytes =
#if defined(__AVX512F__)
    64;
#elif defined(__AVX__)
    32;
#else
    16;
#endif
// Two FMA units with a latency of four or five cycles are kept busy by ten chains.
constexpr int kChains = 12;

template <typename T>
struct Chain {
  typedef T Vector __attribute__((vector_size(kBytes)));
  static constexpr int kFlops = 2 * kBytes / sizeof(T);
  Vector value{};
  void step() { value = value * T(0.5) + T(1); }
};

#if defined(__AVX512BF16__)
struct Bfloat16 {};
template <>
struct Chain<Bfloat16> {
  static constexpr int kFlops = 2 * kBytes / 2;
  __m512 value{};
  __m512bh factor{};
  void step() { value = _mm512_dpbf16_ps(value, factor, factor); }
};
#else
using Bfloat16 = float;
#endif

template <typename T>
void work(int64_t steps) {
  Chain<T> chains[kChains];
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      chains[c].step();
      asm volatile("" : KEPT(chains[c].value));
    }
  }
}

// Runs at least `flops` floating-point operations on each of `threads` threads; returns how many.
template <typename T>
double run(double flops, int threads) {
  const double a_step = static_cast<double>(kChains) * Chain<T>::kFlops;
  const int64_t steps = static_cast<int64_t>(flops / a_step) + 1;
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work<T>, steps);
  work<T>(steps);
  for (auto& other : others) other.join();
  return threads * a_step * static_cast<double>(steps);
}

}  // namespace

extern "C" {
double fma_float32(double flops, int threads) { return run<float>(flops, threads); }
double fma_float64(double flops, int threads) { return run<double>(flops, threads); }
// Products of float16 are summed in float.
double fma_float16(double flops, int threads) { return run<float>(flops, threads); }
double fma_bfloat16(double flops, int threads) { return run<Bfloat16>(flops, threads); }
}
