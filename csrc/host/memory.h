// Copies that may be of nothing: a tensor without elements has no memory, and a null pointer is no
// argument for memcpy, whatever the count.
#pragma once

#include <cstdint>
#include <cstring>

namespace lltm {

template <class T>
void copy_values(T* to, const T* from, int64_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

template <class T>
void clear_values(T* to, int64_t count) {
  if (count > 0) std::memset(static_cast<void*>(to), 0, count * sizeof(T));
}

}  // namespace lltm
