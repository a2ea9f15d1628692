// All steps of a sequence backward on CPU arrays, from the last to the first, each one kernel as
// forward; then the products over all of them.
#pragma once

#include <algorithm>

#include "../cell.h"
#include "../contract.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "recurrent_gradient.h"
#include "resets.h"
#include "scratch.h"
#include "step_operands.h"
#include "tiles.h"
#include "weight_gradient.h"

namespace lltm {
inline namespace LLTM_CELL {

// The gradient that a step leaves for the hidden state before it, with the state's weights packed
// once, and the gates' backward of that step.
template <class Api, class T>
class BackwardProduct {
 public:
  explicit BackwardProduct(const SequenceBackward<T>& args)
      : sizes_(args.sizes.cell),
        packed_(cpu::kernels().of<T>().pack_backward, args.weights, sizes_.width(), sizes_.head(),
                sizes_, cpu::kBackwardVectors),
        d_zs_(sizes_.batch * sizes_.gates()),
        kept_(args) {}

  // No step comes after it.
  void last_step(int64_t t, cpu::GatesBackward<T> gates) {
    gates.d_z_next = d_zs_.next(t);
    gates_backward<Api, T>(gates);
    d_z_after_ = d_zs_.written(t, gates.d_z[kRecurrentShare]);
  }

  void step(int64_t t, cpu::GatesBackward<T> gates) {
    gates.d_z_next = d_zs_.next(t);
    const cpu::StepBackward<T> step{gates, d_z_after_, packed_.data(), sizes_.heads, t % 2 == 1};
    run<Api>(cpu::kernels().of<T>().step_backward, step, packed_.panels(),
             2 * gates.rows * Cell::kGates * sizes_.head() * cpu::kBackwardVectors *
                 cpu::kernels().of<T>().width,
             kGrainFlops);
    d_z_after_ = d_zs_.written(t, gates.d_z[kRecurrentShare]);
  }

  // Some rows' states did not come from the step before.
  void drop_rows(const bool* dropped) { d_z_after_ = kept_.without(d_z_after_, dropped); }

 private:
  CellSizes sizes_;
  PackedWeights<Api, T> packed_;
  ComputeState<T> d_zs_;
  KeptRows<cpu::compute_t<T>> kept_;
  const cpu::compute_t<T>* d_z_after_ = nullptr;
};

// The steps from the last to the first, by a BackwardProduct or a TiledBackwardProduct.
template <class Api, class Product, class T>
class BackwardSteps {
 public:
  using C = cpu::compute_t<T>;

  explicit BackwardSteps(const SequenceBackward<T>& args)
      : args_(args),
        plane_(args.sizes.cell.batch * args.sizes.cell.state),
        product_(args),
        resets_(args.resets, args.sizes),
        reset_gradients_(args),
        carry_(Cell::kStates * plane_) {}

  void run() {
    for (int64_t t = args_.sizes.steps - 1; t >= 0; --t) {
      const bool* rows = reset_rows(args_.resets, args_.sizes, t);
      const cpu::GatesBackward<T> step = of_step(t, rows);
      t == args_.sizes.steps - 1 ? product_.last_step(t, step) : product_.step(t, step);
      if (rows) drop_rows(t, rows);
    }
    reset_gradients_.finish();
    finish_first(reset_rows(args_.resets, args_.sizes, 0));
  }

 private:
  // A state after step t.
  const T* after(int which, int64_t t) const {
    if (t < 0) return args_.first[which];
    return which == 0 ? args_.output + t * plane_
                      : args_.states + (t * (Cell::kStates - 1) + which - 1) * plane_;
  }

  cpu::GatesBackward<T> of_step(int64_t t, const bool* rows) const {
    const CellSizes& cell = args_.sizes.cell;
    const bool last = t == args_.sizes.steps - 1;
    cpu::GatesBackward<T> step{cell.batch, cell.state, args_.scalars};
    step.saved = args_.saved + t * plane_ * Cell::kSaved;
    if (args_.grad_output) step.grad_h = args_.grad_output + t * plane_;
    for (int i = 0; i < Cell::kStates; ++i) {
      step.old_state[i] = after(i, t - 1);
      if (rows) step.old_state[i] = resets_.replace(i, step.old_state[i], rows);
      step.new_state[i] = after(i, t);
      if (last) step.grad_state[i] = args_.grad_last[i];
      if (i < kFirstPassed) continue;
      if (!last) step.carry_in[i] = carry(i);
      step.carry_out[i] = carry(i);
      if (t == 0 && !rows) step.d_old_state[i] = args_.d_first[i];
    }
    for (int share = 0; share < kShares; ++share) {
      step.d_z[share] = args_.d_z[share] + t * plane_ * Cell::kGates;
    }
    return step;
  }

  // The step before leaves nothing to the states that some rows begin again with.
  void drop_rows(int64_t t, const bool* rows) {
    reset_gradients_.add(t, rows, carry_.data());
    const int64_t state = args_.sizes.cell.state;
    for (int i = kFirstPassed; i < Cell::kStates; ++i) {
      for (int64_t row = 0; row < args_.sizes.cell.batch; ++row) {
        if (rows[row]) clear_values(carry(i) + row * state, state);
      }
    }
    product_.drop_rows(rows);
  }

  // The states before the first step; `rows` of them were not read.
  void finish_first(const bool* rows) const {
    const CellSizes& sizes = args_.sizes.cell;
    const auto narrow = cpu::kernels().of<T>().narrow;
    for (int i = 1; rows && i < Cell::kStates; ++i) {
      if (args_.d_first[i]) narrow(carry(i), args_.d_first[i], plane_);
    }
    if (!args_.d_first[0]) return;
    const KeptRows<T> kept(args_);
    const T* d_z = args_.d_z[kRecurrentShare];
    if (rows) d_z = kept.without(d_z, rows);
    if constexpr (!Cell::kDirect) {
      return recurrent_gradient<Api>(d_z, args_.weights, sizes.batch, sizes, args_.d_first[0]);
    }
    const Scratch<C> d_h(plane_);
    recurrent_gradient<Api>(d_z, args_.weights, sizes.batch, sizes, d_h.data());
    for (int64_t i = 0; i < plane_; ++i) d_h.data()[i] += carry(0)[i];
    narrow(d_h.data(), args_.d_first[0], plane_);
  }

  C* carry(int which) const { return carry_.data() + which * plane_; }

  const SequenceBackward<T>& args_;
  int64_t plane_;
  Product product_;
  ResetStates<T> resets_;
  ResetGradients<Api, T> reset_gradients_;
  Scratch<C> carry_;  // [N, B, S] of each state, from a step to the one before it
};

// The gradient that the states get when there is no step in between.
template <class T>
void pass_through(const T* grad, int64_t count, T* to) {
  if (!to) return;
  if (grad) {
    copy_values(to, grad, count);
  } else {
    clear_values(to, count);
  }
}

// Everything before the products over all steps: d_z, and the states' gradients.
template <class Api, class T>
void sequence_steps_backward(const SequenceBackward<T>& args) {
  const int64_t plane = args.sizes.cell.batch * args.sizes.cell.state;
  if (args.sizes.steps == 0) {
    for (int i = 0; i < Cell::kStates; ++i) {
      pass_through(args.grad_last[i], plane, args.d_first[i]);
      pass_through<T>(nullptr, plane, args.d_reset_state[i]);
    }
    return;
  }
  if (plane == 0) return;
  if (has_tiles<T>(args.sizes.cell)) {
    if constexpr (kTiles<T>) BackwardSteps<Api, TiledBackwardProduct<Api>, T>(args).run();
  } else {
    BackwardSteps<Api, BackwardProduct<Api, T>, T>(args).run();
  }
}

// Everything backward: d_z of all steps in scratch, then the products over them.
template <class Api, class T>
void sequence_backward(SequenceBackward<T> args) {
  const CellSizes& cell = args.sizes.cell;
  const int64_t rows = args.sizes.steps * cell.batch, gates = cell.gates();
  const Scratch<T> d_z(kShares * rows * gates);
  for (int share = 0; share < kShares; ++share) args.d_z[share] = d_z.data() + share * rows * gates;
  sequence_steps_backward<Api>(args);
  if (args.d.input) {
    multiply<Api>(
        dense(args.d.input, rows, cell.features), dense<const T>(args.d_z[0], rows, gates),
        dense(args.weights, gates, cell.width()).column_range(cell.head(), cell.features));
  }
  if (args.d.weights) {
    WeightGradient<T> of{args.sizes};
    std::copy_n(args.d_z, kShares, of.d_z);
    of.h0 = args.first[0];
    of.output = args.output;
    of.input = args.input;
    of.resets = args.resets;
    of.d_weights = args.d.weights;
    weight_gradient<Api>(of);
  }
  for (int share = 0; args.d.bias && share < kShares; ++share) {
    column_sum<Api, T>({rows, gates, args.d_z[share], args.d.bias + share * gates});
  }
}

}  // namespace LLTM_CELL
}  // namespace lltm
