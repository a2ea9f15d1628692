// What the products of a sequence's steps read: weights that are packed once, states in the type
// that is computed in.
#pragma once

#include "../cell.h"
#include "../contract.h"
#include "../cpu/kernels.h"
#include "parallel.h"
#include "scratch.h"

namespace lltm {
inline namespace LLTM_CELL {

// A [B, width] array in the compute type, as the next step's product reads it: where it is stored
// if that is its type already, else a widened copy.
template <class T>
class ComputeState {
 public:
  using C = cpu::compute_t<T>;
  static constexpr bool kCopies = !is_compute_type_v<T>;

  // Two copies, because a step reads one while it writes the next.
  explicit ComputeState(int64_t count) : count_(count), copies_(kCopies ? 2 * count : 0) {}

  // Where step t has to write its copy, or null.
  C* next(int64_t t) const { return kCopies ? copies_.data() + (t % 2) * count_ : nullptr; }

  // What step t wrote, given where it is stored.
  const C* written(int64_t t, const T* stored) const {
    if constexpr (kCopies) {
      return next(t);
    } else {
      return stored;
    }
  }

  // What no step wrote, for step t to read.
  const C* widened(int64_t t, const T* stored) const {
    if constexpr (kCopies) {
      cpu::kernels().of<T>().widen(stored, next(t + 1), count_);
      return next(t + 1);
    } else {
      return stored;
    }
  }

 private:
  int64_t count_;
  Scratch<C> copies_;
};

// So many columns of the weights, packed in panels of so many vectors, a head after the other.
template <class Api, class T>
class PackedWeights {
 public:
  // `weights` begins with the first of the columns; its rows are `stride` apart.
  PackedWeights(void (*kernel)(const cpu::Pack<T>&, int64_t, int64_t), const T* weights,
                int64_t stride, int64_t columns, const CellSizes& sizes, int64_t vectors)
      : panels_(cpu::kernels().of<T>().panels(sizes.head(), vectors)),
        heads_(sizes.heads),
        packed_(heads_ * size(columns, vectors)) {
    const int64_t head = sizes.head();
    for (int64_t k = 0; k < heads_; ++k) {
      const cpu::Pack<T> args{weights + k * head * stride,
                              stride,
                              sizes.state,
                              head,
                              columns,
                              packed_.data() + k * size(columns, vectors)};
      run<Api>(kernel, args, panels_,
               Cell::kGates * columns * vectors * cpu::kernels().of<T>().width, kGrainElements);
    }
  }

  int64_t panels() const { return heads_ * panels_; }
  const cpu::compute_t<T>* data() const { return packed_.data(); }

 private:
  int64_t panels_;  // of a head
  int64_t heads_;
  Scratch<cpu::compute_t<T>> packed_;

  // Elements of a packed head.
  int64_t size(int64_t columns, int64_t vectors) const {
    return panels_ * vectors * cpu::kernels().of<T>().width * Cell::kGates * columns;
  }
};

}  // namespace LLTM_CELL
}  // namespace lltm
