// Copies that may be of nothing: a tensor without elements has no memory, and a null pointer is no
// argument for memcpy, whatever the count.
#pragma once

#include <cstdint>
#include <cstring>

#include "../contract.h"

namespace lltm {

template <class T>
void copy_values(T* to, const T* from, int64_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

template <class T>
void clear_values(T* to, int64_t count) {
  if (count > 0) std::memset(static_cast<void*>(to), 0, count * sizeof(T));
}

// X = [old_h, input], [B, S + F]
template <class T>
void concatenate(const T* old_h, const T* input, const CellSizes& sizes, T* x) {
  const int64_t width = sizes.state + sizes.features;
  for (int64_t row = 0; row < sizes.batch; ++row) {
    copy_values(x + row * width, old_h + row * sizes.state, sizes.state);
    copy_values(x + row * width + sizes.state, input + row * sizes.features, sizes.features);
  }
}

}  // namespace lltm
