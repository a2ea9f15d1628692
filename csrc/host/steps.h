// All steps of a sequence on CPU arrays: the input's share of the pre-activations in one product
// before the time loop, or in each step's, the weights' gradient in one product after it. In
// between, a step is one kernel: a product with weights that were packed once, the gates in its
// epilogue.
#pragma once

#include <algorithm>
#include <optional>

#include "../cell.h"
#include "../contract.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "resets.h"
#include "scratch.h"
#include "tiles.h"
#include "widened.h"

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
  // `weights` begins with the first of the columns.
  PackedWeights(void (*kernel)(const cpu::Pack<T>&, int64_t, int64_t), const T* weights,
                int64_t columns, const CellSizes& sizes, int64_t vectors)
      : panels_(cpu::kernels().of<T>().panels(sizes.head(), vectors)),
        heads_(sizes.heads),
        packed_(heads_ * size(columns, vectors)) {
    const int64_t head = sizes.head(), width = sizes.width();
    for (int64_t k = 0; k < heads_; ++k) {
      const cpu::Pack<T> args{weights + k * head * width,
                              width,
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

// Forward ----------------------------------------------------------------------------------------

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
  const auto weights = dense(args.weights, cell.gates(), cell.width());
  multiply<Api>(
      Matrix<cpu::compute_t<T>>{args.share(first), rows, cell.gates(), args.share_stride()},
      dense(args.input + first * batch * features, rows, features),
      weights.column_range(cell.head(), features).transposed());
}

// The recurrent share of forward's steps, and the input's where it is not known, with the weights
// packed once, and their gates.
template <class Api, class T>
class ForwardProduct {
 public:
  explicit ForwardProduct(const SequenceForward<T>& args)
      : sizes_(args.sizes.cell),
        packed_(cpu::kernels().of<T>().pack_forward, args.weights, sizes_.head(), sizes_, kVectors),
        input_(args.input),
        states_(sizes_.batch * sizes_.state),
        h_(states_.widened(0, args.first[0])) {
    if (args.projected) return;
    packed_input_.emplace(cpu::kernels().of<T>().pack_forward, args.weights + sizes_.head(),
                          sizes_.features, sizes_, kVectors);
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

// The steps, by a ForwardProduct or, where their input's share is known, a TiledForwardProduct.
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

// Backward ---------------------------------------------------------------------------------------

// The gradient that a step leaves for the hidden state before it, with the state's weights packed
// once, and the gates' backward of that step.
template <class Api, class T>
class BackwardProduct {
 public:
  explicit BackwardProduct(const SequenceBackward<T>& args)
      : sizes_(args.sizes.cell),
        packed_(cpu::kernels().of<T>().pack_backward, args.weights, sizes_.head(), sizes_,
                cpu::kBackwardVectors),
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

// The gradients that go to the states which rows began anew with.
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

  // The step before leaves nothing to the states that some rows begin anew with.
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

// X = [h before the step, input] of every step, [T * B, S + F]
template <class T>
void concatenate_steps(const T* h0, const T* output, const T* input, const Resets<T>& resets,
                       const SequenceSizes& sizes, T* x) {
  const int64_t batch = sizes.cell.batch, features = sizes.cell.features, state = sizes.cell.state;
  const ResetStates<T> replaced(resets, sizes);
  for (int64_t t = 0; t < sizes.steps; ++t) {
    const T* h = t ? output + (t - 1) * batch * state : h0;
    if (const bool* rows = reset_rows(resets, sizes, t)) h = replaced.replace(0, h, rows);
    concatenate(h, input + t * batch * features, sizes.cell, x + t * batch * (state + features));
  }
}

template <class T>
struct WeightGradient {
  SequenceSizes sizes;
  const T* d_z[kShares] = {};  // [T, B, GS] of each share
  const T* h0 = nullptr;       // [B, S]
  const T* output = nullptr;   // [T, B, S]
  const T* input = nullptr;    // [T, B, F]
  Resets<T> resets = {};
  T* d_weights = nullptr;  // [GS, S / H + F]
};

// c = a b, a sum over all steps.
template <class Api, class T>
void multiply_steps(const Matrix<T>& c, const Matrix<const T>& a, const Matrix<const T>& b) {
  if constexpr (is_compute_type_v<T>) {
    multiply_computed<Api>(c, a, b,
                           std::min(cpu::steps_sum_block(a.columns), cpu::kernels().sum_block));
  } else {
    multiply_mixed<Api>(c, a, b);
  }
}

// d_weights = d_z.T X over all steps at once. X is put together first: d_z is four times as large
// or more and would be packed anew for each piece of it.
template <class Api, class T>
void weight_gradient(const WeightGradient<T>& args) {
  const CellSizes& cell = args.sizes.cell;
  const int64_t rows = args.sizes.steps * cell.batch, state = cell.state, head = cell.head();
  const Scratch<T> x(rows * (state + cell.features));
  concatenate_steps(args.h0, args.output, args.input, args.resets, args.sizes, x.data());
  const auto d_weights = dense(args.d_weights, cell.gates(), cell.width());
  const auto steps = dense<const T>(x.data(), rows, state + cell.features);
  const auto d_z = [&](int share) { return dense(args.d_z[share], rows, cell.gates()); };
  if (cell.heads == 1 && !Cell::kSplit) {
    return multiply_steps<Api>(d_weights, d_z(0).transposed(), steps);
  }
  multiply_steps<Api>(d_weights.column_range(head, cell.features), d_z(0).transposed(),
                      steps.column_range(state, cell.features));
  const int64_t pieces = cell.heads == 1 ? 1 : Cell::kGates;
  for (int64_t k = 0; k < cell.heads; ++k) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t first = piece * state + k * head, count = cell.gates() / cell.heads / pieces;
      multiply_steps<Api>(
          Matrix<T>{args.d_weights + first * cell.width(), count, head, cell.width()},
          d_z(kRecurrentShare).column_range(first, count).transposed(),
          steps.column_range(k * head, head));
    }
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
