// Memory for the length of one call, aligned for the widest vector.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace lltm {

constexpr std::align_val_t kAlignment{64};

// What a thread keeps for its next call, at most. The C library would return blocks of this size to
// the system after every call and fault them in again at the next: a seventh of a small sequence's
// time.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

class Pool {
 public:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
  };

  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (const Block& block : kept_) ::operator delete(block.memory, kAlignment);
  }

  static Pool& of_this_thread() {
    thread_local Pool pool;
    return pool;
  }

  // The smallest kept block that fits and is not twice too large, else a new one.
  Block take(std::size_t bytes) {
    Block* best = nullptr;
    for (Block& block : kept_) {
      const bool fits = block.bytes >= bytes && block.bytes / 2 <= bytes;
      if (fits && (!best || block.bytes < best->bytes)) best = &block;
    }
    if (!best) return {::operator new(bytes, kAlignment), bytes};
    kept_bytes_ -= best->bytes;
    return std::exchange(*best, Block{});
  }

  void give_back(Block block) {
    if (kept_bytes_ + block.bytes <= kKeptBytes) {
      for (Block& place : kept_) {
        if (place.memory) continue;
        kept_bytes_ += block.bytes;
        place = block;
        return;
      }
    }
    ::operator delete(block.memory, kAlignment);
  }

 private:
  std::array<Block, 8> kept_;
  std::size_t kept_bytes_ = 0;
};

// Unfilled room for `count` elements.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : block_(Pool::of_this_thread().take(static_cast<std::size_t>(count) * sizeof(T))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Pool::of_this_thread().give_back(block_); }

  T* data() const { return static_cast<T*>(block_.memory); }

 private:
  Pool::Block block_;
};

}  // namespace lltm
