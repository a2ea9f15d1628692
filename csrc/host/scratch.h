// Memory for the length of one call, aligned for the widest vector.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace lltm {

constexpr std::align_val_t kAlignment{64};

// What a thread keeps for its next call, at most. The C library would return blocks of this size to
// the system after every call and fault them in again at the next: a seventh of a small sequence's
// time.
constexpr std::size_t kKeptBytes = std::size_t{32} << 20;

// What all threads keep together, at most: a server may have hundreds, most of them idle. A thread
// that comes when it is used up takes its blocks from the C library.
constexpr std::size_t kKeptBytesOfAll = std::size_t{64} << 20;

// From here on a block comes from the system and goes back there. The C library would keep it, once
// for every thread's heap.
constexpr std::size_t kSystemBytes = std::size_t{1} << 20;

// Of x86-64, and of aarch64 with pages of 4 KiB.
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

#if defined(__unix__) || defined(__APPLE__)
constexpr bool kHasSystemBlocks = true;

// Whole huge pages: weights and gradients of this size are in another small page every few lines.
inline Block system_allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
  const std::size_t room = whole + kHugeBytes;
  void* memory = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory) % kHugeBytes;
  char* block = static_cast<char*>(memory) + before;
  if (before > 0) ::munmap(memory, before);
  ::munmap(block + whole, kHugeBytes - before);
#ifdef MADV_HUGEPAGE
  ::madvise(block, whole, MADV_HUGEPAGE);
#endif
  return {block, whole};
}
inline void system_free(const Block& block) { ::munmap(block.memory, block.bytes); }
#else
constexpr bool kHasSystemBlocks = false;
inline Block system_allocate(std::size_t) { return {}; }
inline void system_free(const Block&) {}
#endif

inline bool is_of_the_system(std::size_t bytes) {
  return kHasSystemBlocks && bytes >= kSystemBytes;
}

inline Block allocate(std::size_t bytes) {
  if (is_of_the_system(bytes)) return system_allocate(bytes);
  return {::operator new(bytes, kAlignment), bytes};
}

inline void free_block(const Block& block) {
  if (is_of_the_system(block.bytes)) return system_free(block);
  ::operator delete(block.memory, kAlignment);
}

// Bytes that threads keep for their next call, in all.
class Budget {
 public:
  static bool reserve(std::size_t bytes) {
    if (kept_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= kKeptBytesOfAll) return true;
    release(bytes);
    return false;
  }
  static std::size_t left() {
    const std::size_t kept = kept_.load(std::memory_order_relaxed);
    return kept < kKeptBytesOfAll ? kKeptBytesOfAll - kept : 0;
  }
  static void release(std::size_t bytes) { kept_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::size_t> kept_{0};
};

// The blocks that a thread keeps, the one that came back last at the end: where there is no room
// for one more, the first goes, so that a thread whose work changes its sizes keeps those it has
// now.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    while (count_ > 0) free_block(remove(0));
  }

  static Pool& of_this_thread() {
    thread_local Pool pool;
    return pool;
  }

  // The smallest kept block that fits and is not twice too large, else a new one.
  Block take(std::size_t bytes) {
    if (bytes == 0) return {};
    std::size_t best = count_;
    for (std::size_t i = 0; i < count_; ++i) {
      const bool fits = kept_[i].bytes >= bytes && kept_[i].bytes / 2 <= bytes;
      if (fits && (best == count_ || kept_[i].bytes < kept_[best].bytes)) best = i;
    }
    return best == count_ ? allocate(bytes) : remove(best);
  }

  void give_back(const Block& block) {
    if (!block.memory) return;
    // No block goes for one that has no room beside none.
    if (block.bytes > kKeptBytes || block.bytes > kept_bytes_ + Budget::left()) {
      return free_block(block);
    }
    while (!keep(block)) {
      if (count_ == 0) return free_block(block);
      free_block(remove(0));
    }
  }

 private:
  bool keep(const Block& block) {
    if (count_ == kept_.size() || kept_bytes_ + block.bytes > kKeptBytes ||
        !Budget::reserve(block.bytes)) {
      return false;
    }
    kept_bytes_ += block.bytes;
    kept_[count_++] = block;
    return true;
  }

  Block remove(std::size_t at) {
    const Block block = kept_[at];
    std::copy(kept_.begin() + at + 1, kept_.begin() + count_, kept_.begin() + at);
    --count_;
    kept_bytes_ -= block.bytes;
    Budget::release(block.bytes);
    return block;
  }

  std::array<Block, 8> kept_;
  std::size_t count_ = 0;
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
  Block block_;
};

}  // namespace lltm
