// Rows of a sequence that begin again at a step.
#pragma once

#include <algorithm>

#include "memory.h"
#include "passes.h"
#include "scratch.h"

namespace lltm {
inline namespace LLTM_CELL {

// The rows that begin again at step t, [B], or null where none does.
template <class T>
const bool* reset_rows(const Resets<T>& resets, const SequenceSizes& sizes, int64_t t) {
  if (!resets.rows) return nullptr;
  const int64_t batch = sizes.cell.batch;
  const bool* rows = resets.rows + t * batch;
  return std::find(rows, rows + batch, true) == rows + batch ? nullptr : rows;
}

// The states before a step, with those of rows that begin again in their place.
template <class T>
class ResetStates {
 public:
  ResetStates(const Resets<T>& resets, const SequenceSizes& sizes)
      : resets_(resets),
        batch_(sizes.cell.batch),
        state_(sizes.cell.state),
        replaced_(resets.rows ? Cell::kStates * batch_ * state_ : 0) {}

  // All of one state, until the next call for it.
  const T* replace(int which, const T* from, const bool* rows) const {
    T* to = replaced_.data() + which * batch_ * state_;
    copy_values(to, from, batch_ * state_);
    write(which, rows, to);
    return to;
  }

  // Over the rows of one state.
  void write(int which, const bool* rows, T* to) const {
    for (int64_t row = 0; row < batch_; ++row) {
      if (!rows[row]) continue;
      const T* of = resets_.state[which];
      T* at = to + row * state_;
      of ? copy_values(at, of + row * state_, state_) : clear_values(at, state_);
    }
  }

 private:
  Resets<T> resets_;
  int64_t batch_, state_;
  Scratch<T> replaced_;
};

// The gradients of the recurrent pre-activations, zero in some rows. V is the type they are in.
template <class V>
class KeptRows {
 public:
  template <class T>
  explicit KeptRows(const SequenceBackward<T>& args)
      : batch_(args.sizes.cell.batch),
        gates_(args.sizes.cell.gates()),
        kept_(args.resets.rows ? batch_ * gates_ : 0) {}

  const V* without(const V* from, const bool* dropped) const {
    copy_values(kept_.data(), from, batch_ * gates_);
    for (int64_t row = 0; row < batch_; ++row) {
      if (dropped[row]) clear_values(kept_.data() + row * gates_, gates_);
    }
    return kept_.data();
  }

 private:
  int64_t batch_, gates_;
  Scratch<V> kept_;
};

}  // namespace LLTM_CELL
}  // namespace lltm
