// Memory for the length of one call, aligned for the widest vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace lltm {

constexpr std::align_val_t kAlignment{64};

struct AlignedDelete {
  void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
};

// Unfilled room for `count` elements.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(static_cast<T*>(
            ::operator new(static_cast<std::size_t>(count) * sizeof(T), kAlignment))) {}

  T* data() const { return memory_.get(); }

 private:
  std::unique_ptr<T, AlignedDelete> memory_;
};

}  // namespace lltm
