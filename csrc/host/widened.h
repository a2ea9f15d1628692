// An array as the kernels compute with it.
#pragma once

#include <type_traits>

#include "../cpu/kernels.h"
#include "scratch.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class T>
constexpr bool is_compute_type_v = std::is_same_v<T, cpu::compute_t<T>>;

// Where it is stored if that is the compute type already, else a copy for the length of a call.
template <class T>
class Widened {
 public:
  using C = cpu::compute_t<T>;

  Widened(const T* stored, int64_t count) : copy_(is_compute_type_v<T> ? 0 : count) {
    if constexpr (is_compute_type_v<T>) {
      data_ = stored;
    } else {
      cpu::kernels().of<T>().widen(stored, copy_.data(), count);
      data_ = copy_.data();
    }
  }

  const C* data() const { return data_; }

 private:
  Scratch<C> copy_;
  const C* data_;
};

}  // namespace LLTM_CELL
}  // namespace lltm
