// Gradients that leave the steps through the product with the state's weights: of the state before
// the first step, and of those that rows began again with.
#pragma once

#include <algorithm>

#include "../cell.h"
#include "../contract.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "scratch.h"
#include "widened.h"

namespace lltm {
inline namespace LLTM_CELL {

// to = d_z weights[:, :S / H], the gradient of h that passes through the product, [rows, S]
template <class Api, class T, class R>
void recurrent_gradient(const T* d_z, const T* weights, int64_t rows, const CellSizes& sizes,
                        R* to) {
  const int64_t gates = sizes.gates(), head = sizes.head(), state = sizes.state;
  const auto w = dense(weights, gates, sizes.width()).column_range(0, head);
  if (sizes.heads == 1) {
    return multiply<Api>(dense(to, rows, state), dense<const T>(d_z, rows, gates), w);
  }
  const int64_t depth = Cell::kGates * head;
  const Scratch<T> of_head(rows * depth), weights_of_head(depth * head);
  for (int64_t k = 0; k < sizes.heads; ++k) {
    for (int64_t gate = 0; gate < Cell::kGates; ++gate) {
      const int64_t first = gate * state + k * head;
      for (int64_t row = 0; row < rows; ++row) {
        copy_values(of_head.data() + row * depth + gate * head, d_z + row * gates + first, head);
      }
      for (int64_t i = 0; i < head; ++i) {
        copy_values(weights_of_head.data() + (gate * head + i) * head,
                    w.data + (first + i) * w.row_stride, head);
      }
    }
    multiply<Api>(Matrix<R>{to + k * head, rows, head, state},
                  dense<const T>(of_head.data(), rows, depth),
                  dense<const T>(weights_of_head.data(), depth, head));
  }
}

// The gradients that go to the states which rows began again with.
template <class Api, class T>
class ResetGradients {
 public:
  using C = cpu::compute_t<T>;

  explicit ResetGradients(const SequenceBackward<T>& args)
      : args_(args),
        wanted_(std::any_of(args.d_reset_state, args.d_reset_state + Cell::kStates,
                            [](const T* to) { return to != nullptr; })),
        plane_(args.sizes.cell.batch * args.sizes.cell.state),
        d_z_(wanted_ ? plane_ * Cell::kGates : 0),
        d_state_(wanted_ ? plane_ * Cell::kStates : 0),
        line_(wanted_ ? args.sizes.cell.gates() : 0) {
    if (!wanted_) return;
    clear_values(d_z_.data(), plane_ * Cell::kGates);
    clear_values(d_state_.data(), plane_ * Cell::kStates);
  }

  // Of step t; its carries are not zeroed yet.
  void add(int64_t t, const bool* rows, const C* carries) {
    if (!wanted_) return;
    const int64_t state = args_.sizes.cell.state, gates = args_.sizes.cell.gates();
    const T* d_z = args_.d_z[kRecurrentShare] + t * plane_ * Cell::kGates;
    for (int64_t row = 0; row < args_.sizes.cell.batch; ++row) {
      if (!rows[row]) continue;
      cpu::kernels().of<T>().widen(d_z + row * gates, line_.data(), gates);
      add_line(line_.data(), gates, d_z_.data() + row * gates);
      for (int i = kFirstPassed; i < Cell::kStates; ++i) {
        const int64_t at = i * plane_ + row * state;
        add_line(carries + at, state, d_state_.data() + at);
      }
    }
  }

  void finish() const {
    if (!wanted_) return;
    const CellSizes& sizes = args_.sizes.cell;
    if (args_.d_reset_state[0]) {
      const Widened<T> weights(args_.weights, sizes.gates() * sizes.width());
      const Scratch<C> d_h(plane_);
      recurrent_gradient<Api, C>(d_z_.data(), weights.data(), sizes.batch, sizes, d_h.data());
      add_line(d_h.data(), plane_, d_state_.data());
    }
    for (int i = 0; i < Cell::kStates; ++i) {
      if (!args_.d_reset_state[i]) continue;
      cpu::kernels().of<T>().narrow(d_state_.data() + i * plane_, args_.d_reset_state[i], plane_);
    }
  }

 private:
  static void add_line(const C* from, int64_t count, C* to) {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }

  const SequenceBackward<T>& args_;
  bool wanted_;
  int64_t plane_;
  Scratch<C> d_z_;      // [B, GS]
  Scratch<C> d_state_;  // [N, B, S] but for what passes through the product
  Scratch<C> line_;
};

}  // namespace LLTM_CELL
}  // namespace lltm
