// Storage types of the CPU kernels, and the type each one is computed in.
#pragma once

#include <cstdint>

namespace lltm::cpu {

struct BFloat16 {
  uint16_t bits;
};

struct Half {
  uint16_t bits;
};

template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};
template <>
struct ComputeType<Half> {
  using type = float;
};

// float for the 16-bit types, else the type itself.
template <class T>
using compute_t = typename ComputeType<T>::type;

}  // namespace lltm::cpu
