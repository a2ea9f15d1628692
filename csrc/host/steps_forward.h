// All steps of a sequence on CPU arrays: the input's share of the pre-activations in one product
// before the time loop, or in each step's. A step is one kernel: a product with weights that were
// packed once, or of a short sequence where they are, the gates in its epilogue.
#pragma once

#include <algorithm>
#include <optional>

#include "../cell.h"
#include "../contract.h"
#include "in_place.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "resets.h"
#include "scratch.h"
#include "step_operands.h"
#include "tiles.h"

namespace lltm {
inline namespace LLTM_CELL {

// So many steps' pre-activations at a time that they stay in a core's own cache until they are
// read, and rows enough for a product to be worth packing for.
constexpr int64_t kMaxChunkBytes = 1 << 20, kChunkRows = 128;

template <class T>
int64_t projected_steps(const SequenceSizes& sizes) {
  const int64_t batch = sizes.cell.batch;
  const int64_t bytes =
      batch * sizes.cell.gates() * static_cast<int64_t>(sizeof(cpu::compute_t<T>));
  const int64_t room = std::min(cpu::second_level_cache(), kMaxChunkBytes);
  const int64_t steps = std::max(room / bytes, (kChunkRows + batch - 1) / batch);
  return std::min(steps, sizes.steps);
}

// Rows for which reading the input's weights at every step costs nothing: where they stay in a
// core's own cache, and wherever they are.
constexpr int64_t kRowsInCache = 4, kRowsAnywhere = 32;

// Whether each step multiplies its input, too, so that the input's share of the pre-activations is
// neither written nor read.
template <class T>
bool steps_multiply_input(const CellSizes& sizes) {
  const int64_t bytes = sizes.gates() * sizes.features * static_cast<int64_t>(sizeof(T));
  const bool cached = bytes <= cpu::second_level_cache();
  return sizes.batch >= (cached ? kRowsInCache : kRowsAnywhere);
}

// The input's share of the pre-activations of the chunk that begins with step `first`.
template <class Api, class T>
void project_inputs(const SequenceForward<T>& args, int64_t first) {
  const CellSizes& cell = args.sizes.cell;
  const int64_t batch = cell.batch, features = cell.features;
  const int64_t rows = std::min(args.chunk, args.sizes.steps - first) * batch;
  const Matrix<const T> weights{args.weights.input, cell.gates(), features,
                                args.weights.input_stride};
  multiply<Api>(
      Matrix<cpu::compute_t<T>>{args.share(first), rows, cell.gates(), args.share_stride()},
      dense(args.input + first * batch * features, rows, features), weights.transposed());
}

// The recurrent share of forward's steps, and the input's where it is not known, with the weights
// packed once, and their gates.
template <class Api, class T>
class ForwardProduct {
 public:
  explicit ForwardProduct(const SequenceForward<T>& args)
      : sizes_(args.sizes.cell),
        packed_(cpu::kernels().of<T>().pack_forward, args.weights.state, args.weights.state_stride,
                sizes_.head(), sizes_, kVectors),
        input_(args.input),
        states_(sizes_.batch * sizes_.state),
        h_(states_.widened(0, args.first[0])) {
    if (args.projected) return;
    packed_input_.emplace(cpu::kernels().of<T>().pack_forward, args.weights.input,
                          args.weights.input_stride, sizes_.features, sizes_, kVectors);
  }

  // What step t reads instead of what the step before it wrote.
  void replace_h(int64_t t, const T* h) { h_ = states_.widened(t, h); }

  void step(int64_t t, cpu::GatesForward<T> gates) {
    gates.h_next = states_.next(t);
    const cpu::StepForward<T> step{
        gates, {h_, packed_.data(), sizes_.head()}, input(t), sizes_.heads, t % 2 == 1};
    const int64_t depth = step.h.depth + step.x.depth;
    run<Api>(cpu::kernels().of<T>().step_forward, step, packed_.panels(),
             2 * gates.rows * Cell::kGates * depth * cpu::kernels().of<T>().width, kGrainFlops);
    h_ = states_.written(t, gates.new_state[0]);
  }

 private:
  static constexpr int kVectors = cpu::kForwardVectors<Cell::kGates>;

  // Of step t, or of depth 0 where its share is known.
  cpu::PackedProduct<T> input(int64_t t) const {
    if constexpr (is_compute_type_v<T>) {
      if (packed_input_) {
        return {input_ + t * sizes_.batch * sizes_.features, packed_input_->data(),
                sizes_.features};
      }
    }
    return {};
  }

  CellSizes sizes_;
  PackedWeights<Api, T> packed_;
  const T* input_;
  std::optional<PackedWeights<Api, T>> packed_input_;
  ComputeState<T> states_;
  const cpu::compute_t<T>* h_;  // before the next step
};

// The steps, by a ForwardProduct, an InPlaceForwardProduct or, where their input's share is known,
// a TiledForwardProduct.
template <class T, class Product>
class ForwardSteps {
 public:
  explicit ForwardSteps(const SequenceForward<T>& args)
      : args_(args),
        plane_(args.sizes.cell.batch * args.sizes.cell.state),
        product_(args),
        resets_(args.resets, args.sizes),
        carry_(kCarries ? (Cell::kStates - 1) * plane_ : 0) {
    std::copy_n(args.first, Cell::kStates, before_);
    for (int i = 1; kCarries && i < Cell::kStates; ++i) {
      cpu::kernels().of<T>().widen(args.first[i], carry(i), plane_);
    }
  }

  // The steps [first, last), whose input's share args.projected holds unless it is null.
  void run(int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      cpu::GatesForward<T> step = of_step(t, first);
      if (const bool* rows = reset_rows(args_.resets, args_.sizes, t)) reset(t, rows, step);
      product_.step(t, step);
      std::copy_n(step.new_state, Cell::kStates, before_);
    }
    if (last < args_.sizes.steps) return;
    for (int i = 0; i < Cell::kStates; ++i) {
      if (before_[i] != args_.last[i]) copy_values(args_.last[i], before_[i], plane_);
    }
  }

 private:
  static constexpr bool kCarries = !is_compute_type_v<T>;

  cpu::GatesForward<T> of_step(int64_t t, int64_t first) const {
    const CellSizes& cell = args_.sizes.cell;
    cpu::GatesForward<T> step{cell.batch, cell.state, args_.scalars};
    if (args_.projected) {
      step.z_stride = args_.share_stride();
      step.z = args_.share(first) + (t - first) * cell.batch * step.z_stride;
    }
    step.bias = args_.bias;
    if (args_.saved) step.saved = args_.saved + t * plane_ * Cell::kSaved;
    std::copy_n(before_, Cell::kStates, step.old_state);
    step.new_state[0] = args_.output + t * plane_;
    for (int i = 1; i < Cell::kStates; ++i) {
      step.new_state[i] =
          args_.states ? args_.states + (t * (Cell::kStates - 1) + i - 1) * plane_ : args_.last[i];
      if (kCarries) step.carry[i] = carry(i);
    }
    return step;
  }

  void reset(int64_t t, const bool* rows, cpu::GatesForward<T>& step) {
    for (int i = 0; i < Cell::kStates; ++i) {
      step.old_state[i] = resets_.replace(i, step.old_state[i], rows);
      if (kCarries && i > 0) widen_rows(step.old_state[i], rows, carry(i));
    }
    product_.replace_h(t, step.old_state[0]);
  }

  void widen_rows(const T* from, const bool* rows, cpu::compute_t<T>* to) const {
    const int64_t state = args_.sizes.cell.state;
    for (int64_t row = 0; row < args_.sizes.cell.batch; ++row) {
      if (!rows[row]) continue;
      cpu::kernels().of<T>().widen(from + row * state, to + row * state, state);
    }
  }

  cpu::compute_t<T>* carry(int which) const { return carry_.data() + (which - 1) * plane_; }

  const SequenceForward<T>& args_;
  int64_t plane_;
  Product product_;
  ResetStates<T> resets_;
  const T* before_[Cell::kStates];
  // All states but h in the type that they are computed in: a cell state sums over the steps, and
  // so would what is rounded off.
  Scratch<cpu::compute_t<T>> carry_;
};

template <class Api, class Product, class T>
void sequence_loop(const SequenceForward<T>& args) {
  ForwardSteps<T, Product> forward(args);
  for (int64_t t = 0; t < args.sizes.steps; t += args.chunk) {
    project_inputs<Api>(args, t);
    forward.run(t, std::min(t + args.chunk, args.sizes.steps));
  }
}

// `args` but for what is chosen here: where the input's share goes. There are rows and states.
template <class Api, class T>
void sequence_steps_forward(SequenceForward<T> args) {
  using C = cpu::compute_t<T>;
  const int64_t plane = args.sizes.cell.batch * args.sizes.cell.state;
  if (args.sizes.steps == 0) {
    for (int i = 0; i < Cell::kStates; ++i) copy_values(args.last[i], args.first[i], plane);
    return;
  }
  if (reads_weights_in_place<T>(args.sizes)) {
    return ForwardSteps<T, InPlaceForwardProduct<Api, T>>(args).run(0, args.sizes.steps);
  }
  if constexpr (is_compute_type_v<T>) {
    if (steps_multiply_input<T>(args.sizes.cell)) {
      return ForwardSteps<T, ForwardProduct<Api, T>>(args).run(0, args.sizes.steps);
    }
  }
  // What is saved takes the place of the input's share, element by element, where it has room.
  if constexpr (is_compute_type_v<T> && Cell::kSaved >= Cell::kGates) args.projected = args.saved;
  args.in_place = args.projected != nullptr;
  args.chunk = projected_steps<T>(args.sizes);
  const Scratch<C> projected(args.in_place ? 0 : args.chunk * plane * Cell::kGates);
  if (!args.in_place) args.projected = projected.data();
  if (has_tiles<T>(args.sizes.cell)) {
    if constexpr (kTiles<T>) sequence_loop<Api, TiledForwardProduct<Api>>(args);
  } else {
    sequence_loop<Api, ForwardProduct<Api, T>>(args);
  }
}

}  // namespace LLTM_CELL
}  // namespace lltm
