// How values lie in device memory: storage types, and packs of them that one instruction moves.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "../cell.h"
#include "kernels.h"

namespace lltm::cuda {

LLTM_HOST_DEVICE float widen(float value) { return value; }
LLTM_HOST_DEVICE double widen(double value) { return value; }
LLTM_HOST_DEVICE float widen(BFloat16 value) {
  __nv_bfloat16_raw raw;
  raw.x = value.bits;
  return __bfloat162float(__nv_bfloat16(raw));
}
LLTM_HOST_DEVICE float widen(Half value) {
  __half_raw raw;
  raw.x = value.bits;
  return __half2float(__half(raw));
}

// To the nearest, ties to even.
LLTM_HOST_DEVICE void narrow(float value, float& to) { to = value; }
LLTM_HOST_DEVICE void narrow(double value, double& to) { to = value; }
LLTM_HOST_DEVICE void narrow(float value, BFloat16& to) {
  to.bits = static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(value)).x;
}
LLTM_HOST_DEVICE void narrow(float value, Half& to) {
  to.bits = static_cast<__half_raw>(__float2half_rn(value)).x;
}

constexpr int kVectorBytes = 16;  // the widest access of one thread

// Values of T in one such access.
template <class T>
constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));

// N values side by side. Packs wider than one access are moved in several.
template <class T, int N>
struct alignas(N * sizeof(T) < kVectorBytes ? N * sizeof(T) : kVectorBytes) Pack {
  T values[N];
};

template <int N, class T>
LLTM_HOST_DEVICE Pack<compute_t<T>, N> load(const T* from) {
  const Pack<T, N> stored = *reinterpret_cast<const Pack<T, N>*>(from);
  Pack<compute_t<T>, N> wide;
#pragma unroll
  for (int i = 0; i < N; ++i) wide.values[i] = widen(stored.values[i]);
  return wide;
}

template <int N, class T>
__device__ __forceinline__ void store(T* to, const Pack<compute_t<T>, N>& wide) {
  Pack<T, N> stored;
#pragma unroll
  for (int i = 0; i < N; ++i) narrow(wide.values[i], stored.values[i]);
  // By an intrinsic: for a plain store the compiler takes a pack's members one by one up to sm_90.
  if constexpr (sizeof(stored) % kVectorBytes == 0) {
#pragma unroll
    for (size_t i = 0; i < sizeof(stored) / kVectorBytes; ++i) {
      uint4 access;
      memcpy(&access, &stored.values[i * kVector<T>], kVectorBytes);
      __stwb(reinterpret_cast<uint4*>(to) + i, access);
    }
  } else {
    *reinterpret_cast<Pack<T, N>*>(to) = stored;
  }
}

template <int N, class T>
LLTM_HOST_DEVICE void add(Pack<compute_t<T>, N>& sum, const T* from) {
  const auto more = load<N>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) sum.values[i] += more.values[i];
}

// Whether packs may start at every one of these pointers; null ones are not used.
template <class... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}

template <class T, int N>
bool all_aligned(T* const (&pointers)[N]) {
  for (T* pointer : pointers) {
    if (!are_aligned(pointer)) return false;
  }
  return true;
}

}  // namespace lltm::cuda
