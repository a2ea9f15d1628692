// All steps on CPU tensors: the input's share of the pre-activations in one product before the time
// loop, the weights' gradient in one product after it. In between, a step is one kernel: a product
// with weights that were packed once, the gates in its epilogue.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "../contract.h"
#include "cell.h"
#include "dispatch.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "scratch.h"
#include "tiles.h"

namespace lltm {

// A [B, S] state in the compute type, as the next step's product reads it: where it is stored if
// that is its type already, else a widened copy.
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

  // A state that no step wrote.
  const C* widened(const T* stored) const {
    if constexpr (kCopies) {
      cpu::kernels().of<T>().widen(stored, next(1), count_);
      return next(1);
    } else {
      return stored;
    }
  }

 private:
  int64_t count_;
  Scratch<C> copies_;
};

template <class Api, class T>
void pack(void (*kernel)(const cpu::Pack<T>&, int64_t, int64_t), const cpu::Pack<T>& args,
          int64_t vectors) {
  const auto& kernels = cpu::kernels().of<T>();
  run<Api>(kernel, args, kernels.panels(args.state, vectors),
           3 * args.columns * vectors * kernels.width, kGrainElements);
}

// Elements of the state's weights once packed in panels of that many vectors.
template <class T>
int64_t packed_size(int64_t state, int64_t vectors) {
  const auto& kernels = cpu::kernels().of<T>();
  return kernels.panels(state, vectors) * vectors * kernels.width * 3 * state;
}

// So many steps' pre-activations at a time that they stay in a core's own cache until they are
// read, and rows enough for a product to be worth packing for.
constexpr int64_t kChunkBytes = 1 << 20, kChunkRows = 128;

template <class T>
int64_t projected_steps(const SequenceSizes& sizes) {
  const int64_t batch = sizes.cell.batch;
  const int64_t bytes =
      batch * 3 * sizes.cell.state * static_cast<int64_t>(sizeof(cpu::compute_t<T>));
  const int64_t steps = std::max(kChunkBytes / bytes, (kChunkRows + batch - 1) / batch);
  return std::min(steps, sizes.steps);
}

// The input's share of the pre-activations of the chunk that begins with step `first`.
template <class Api, class T>
void project_inputs(const SequenceForward<T>& args, int64_t first) {
  const int64_t batch = args.sizes.cell.batch;
  const int64_t rows = std::min(args.chunk, args.sizes.steps - first) * batch;
  const int64_t features = args.sizes.cell.features, state = args.sizes.cell.state;
  const auto weights = dense(args.weights, 3 * state, state + features);
  multiply<Api>(dense(args.share(first), rows, 3 * state),
                dense(args.input + first * batch * features, rows, features),
                weights.column_range(state, features).transposed());
}

// The recurrent share of forward's steps, with the state's weights packed once, and their gates.
template <class Api, class T>
class ForwardProduct {
 public:
  explicit ForwardProduct(const SequenceForward<T>& args)
      : packed_(packed_size<T>(args.sizes.cell.state, cpu::kForwardVectors)),
        states_(args.sizes.cell.batch * args.sizes.cell.state),
        h_(states_.widened(args.h0)) {
    const auto [batch, features, state] = args.sizes.cell;
    pack<Api, T>(cpu::kernels().of<T>().pack_forward,
                 {args.weights, state + features, state, state, packed_.data()},
                 cpu::kForwardVectors);
  }

  void step(int64_t t, cpu::GatesForward<T> gates) {
    const auto& kernels = cpu::kernels().of<T>();
    gates.h_next = states_.next(t);
    const cpu::StepForward<T> step{gates, {h_, packed_.data(), gates.state}, {}};
    run<Api>(kernels.step_forward, step, kernels.panels(gates.state, cpu::kForwardVectors),
             2 * gates.rows * 3 * gates.state * kernels.width, kGrainFlops);
    h_ = states_.written(t, gates.new_h);
  }

 private:
  Scratch<cpu::compute_t<T>> packed_;
  ComputeState<T> states_;
  const cpu::compute_t<T>* h_;  // before the next step
};

// The steps after their input's share is known, by a ForwardProduct or a TiledForwardProduct.
template <class T, class Product>
class ForwardSteps {
 public:
  explicit ForwardSteps(const SequenceForward<T>& args)
      : args_(args),
        product_(args),
        cell_(args.c0),
        carry_(kCarries ? args.sizes.cell.batch * args.sizes.cell.state : 0) {
    if constexpr (kCarries) {
      cpu::kernels().of<T>().widen(args.c0, carry_.data(),
                                   args.sizes.cell.batch * args.sizes.cell.state);
    }
  }

  // The steps [first, last), whose input's share args.projected holds.
  void run(int64_t first, int64_t last) {
    const int64_t batch = args_.sizes.cell.batch, state = args_.sizes.cell.state;
    const int64_t plane = batch * state;
    for (int64_t t = first; t < last; ++t) {
      T* new_cell = args_.cells ? args_.cells + t * plane : args_.c_n;
      T* gates = args_.gates ? args_.gates + t * 3 * plane : nullptr;
      product_.step(t, {batch, state, args_.alpha, args_.share(first) + (t - first) * 3 * plane,
                        args_.bias, cell_, args_.output + t * plane, new_cell, gates, nullptr,
                        kCarries ? carry_.data() : nullptr});
      cell_ = new_cell;
    }
    if (last == args_.sizes.steps && cell_ != args_.c_n) {
      copy_values(args_.c_n, cell_, plane);
    }
  }

 private:
  static constexpr bool kCarries = !is_compute_type_v<T>;

  const SequenceForward<T>& args_;
  Product product_;
  const T* cell_;
  // The cell in the type that it is computed in: it sums over the steps, and so would what is
  // rounded off.
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

template <class Api, class Tensor = typename Api::Tensor>
SequenceResult<Api> sequence_compute(const char* op, const Tensor& input_, const Tensor& weights_,
                                     const std::optional<Tensor>& bias_, const Tensor& h0_,
                                     const Tensor& c0_, double alpha, bool save) {
  const SequenceSizes sizes = check_sequence<Api>(op, input_, weights_, bias_, h0_, c0_, alpha);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               h0 = Api::contiguous(h0_), c0 = Api::contiguous(c0_);
  const auto bias = contiguous_or_none<Api>(bias_);
  SequenceResult<Api> result{Api::empty(input, {steps, batch, state}),
                             Api::empty(input, {batch, state}), Api::empty(input, {batch, state}),
                             std::nullopt, std::nullopt};
  if (save) {
    result.cells = Api::empty(input, {steps, batch, state});
    result.gates = Api::empty(input, {steps, batch, 3 * state});
  }
  const int64_t plane = batch * state;
  if (plane == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using C = cpu::compute_t<T>;
    T* gates = mutable_data_or_null<Api, T>(result.gates);
    // What is saved takes the place of the input's share, element by element, where it is as wide.
    C* in_place = nullptr;
    if constexpr (is_compute_type_v<T>) in_place = gates;
    const int64_t chunk = projected_steps<T>(sizes);
    const Scratch<C> projected(in_place ? 0 : chunk * plane * 3);
    T* output = Api::template mutable_data<T>(result.output);
    const SequenceForward<T> args{sizes,
                                  alpha,
                                  Api::template data<T>(input),
                                  Api::template data<T>(weights),
                                  data_or_null<Api, T>(bias),
                                  Api::template data<T>(h0),
                                  Api::template data<T>(c0),
                                  in_place ? in_place : projected.data(),
                                  in_place != nullptr,
                                  chunk,
                                  output,
                                  Api::template mutable_data<T>(result.c_n),
                                  mutable_data_or_null<Api, T>(result.cells),
                                  gates};
    if (has_tiles<T>()) {
      if constexpr (kTiles<T>) sequence_loop<Api, TiledForwardProduct<Api>>(args);
    } else {
      sequence_loop<Api, ForwardProduct<Api, T>>(args);
    }
    if (steps == 0) copy_values(args.c_n, args.c0, plane);
    const T* last = steps ? output + (steps - 1) * plane : Api::template data<T>(h0);
    copy_values(Api::template mutable_data<T>(result.h_n), last, plane);
  });
  return result;
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor> sequence_cpu(const Tensor& input, const Tensor& weights,
                                                const std::optional<Tensor>& bias, const Tensor& h0,
                                                const Tensor& c0, double alpha) {
  auto r = sequence_compute<Api>("sequence", input, weights, bias, h0, c0, alpha, false);
  return {r.output, r.h_n, r.c_n};
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> sequence_forward_cpu(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h0,
    const Tensor& c0, double alpha) {
  auto r = sequence_compute<Api>("sequence_forward", input, weights, bias, h0, c0, alpha, true);
  return {r.output, r.h_n, r.c_n, *r.cells, *r.gates};
}

// The gradient that a step leaves for the hidden state before it, with the state's weights packed
// once, and the gates' backward of that step.
template <class Api, class T>
class BackwardProduct {
 public:
  explicit BackwardProduct(const SequenceBackward<T>& args)
      : packed_(packed_size<T>(args.sizes.cell.state, cpu::kBackwardVectors)),
        d_zs_(args.sizes.cell.batch * 3 * args.sizes.cell.state) {
    const auto [batch, features, state] = args.sizes.cell;
    pack<Api, T>(cpu::kernels().of<T>().pack_backward,
                 {args.weights, state + features, state, state, packed_.data()},
                 cpu::kBackwardVectors);
  }

  // No step comes after it.
  void last_step(int64_t t, cpu::GatesBackward<T> gates) {
    gates.d_z_next = d_zs_.next(t);
    gates_backward<Api, T>(gates);
    d_z_after_ = d_zs_.written(t, gates.d_z);
  }

  void step(int64_t t, cpu::GatesBackward<T> gates) {
    const auto& kernels = cpu::kernels().of<T>();
    gates.d_z_next = d_zs_.next(t);
    run<Api>(kernels.step_backward, cpu::StepBackward<T>{gates, d_z_after_, packed_.data()},
             kernels.panels(gates.state, cpu::kBackwardVectors),
             2 * gates.rows * 3 * gates.state * cpu::kBackwardVectors * kernels.width, kGrainFlops);
    d_z_after_ = d_zs_.written(t, gates.d_z);
  }

 private:
  Scratch<cpu::compute_t<T>> packed_;
  ComputeState<T> d_zs_;
  const cpu::compute_t<T>* d_z_after_ = nullptr;
};

// All steps but the product that gives d_h0.
template <class Product, class T>
void sequence_loop_backward(const SequenceBackward<T>& args) {
  const int64_t steps = args.sizes.steps, batch = args.sizes.cell.batch;
  const int64_t state = args.sizes.cell.state, plane = batch * state;
  const Scratch<cpu::compute_t<T>> carry(plane);
  Product product(args);
  for (int64_t t = steps - 1; t >= 0; --t) {
    const bool last = t == steps - 1;
    const cpu::GatesBackward<T> gates{batch,
                                      state,
                                      args.alpha,
                                      args.gates + t * 3 * plane,
                                      args.cells + t * plane,
                                      args.grad_output ? args.grad_output + t * plane : nullptr,
                                      last ? args.grad_h_n : nullptr,
                                      last ? args.grad_c_n : nullptr,
                                      last ? nullptr : carry.data(),
                                      carry.data(),
                                      t == 0 ? args.d_c0 : nullptr,
                                      args.d_z + t * 3 * plane,
                                      nullptr};
    last ? product.last_step(t, gates) : product.step(t, gates);
  }
}

template <class Api, class T>
void sequence_steps_backward(const SequenceBackward<T>& args) {
  const auto [batch, features, state] = args.sizes.cell;
  if (args.sizes.steps == 0 || batch * state == 0) return;
  if (has_tiles<T>()) {
    if constexpr (kTiles<T>) sequence_loop_backward<TiledBackwardProduct<Api>>(args);
  } else {
    sequence_loop_backward<BackwardProduct<Api, T>>(args);
  }
  if (args.d_h0) {
    multiply<Api>(dense(args.d_h0, batch, state), dense<const T>(args.d_z, batch, 3 * state),
                  dense(args.weights, 3 * state, state + features).column_range(0, state));
  }
}

// The gradient that the states get when there is no step in between.
template <class T>
void pass_through(const T* grad, int64_t count, T* to) {
  if (grad) {
    copy_values(to, grad, count);
  } else {
    clear_values(to, count);
  }
}

// X = [h before the step, input] of every step, [T * B, S + F]
template <class T>
void concatenate_steps(const T* h0, const T* output, const T* input, const SequenceSizes& sizes,
                       T* x) {
  const int64_t batch = sizes.cell.batch, features = sizes.cell.features, state = sizes.cell.state;
  for (int64_t t = 0; t < sizes.steps; ++t) {
    concatenate(t ? output + (t - 1) * batch * state : h0, input + t * batch * features, sizes.cell,
                x + t * batch * (state + features));
  }
}

template <class T>
struct WeightGradient {
  SequenceSizes sizes;
  const T* d_z;     // [T, B, 3S]
  const T* h0;      // [B, S]
  const T* output;  // [T, B, S]
  const T* input;   // [T, B, F]
  T* d_weights;     // [3S, S + F]
};

// d_weights = d_z.T X over all steps at once. X is put together first: d_z is four times as large
// or more and would be packed anew for each piece of it.
template <class Api, class T>
void weight_gradient(const WeightGradient<T>& args) {
  const int64_t rows = args.sizes.steps * args.sizes.cell.batch;
  const int64_t width = args.sizes.cell.state + args.sizes.cell.features;
  const int64_t gates = 3 * args.sizes.cell.state;
  const Scratch<T> x(rows * width);
  concatenate_steps(args.h0, args.output, args.input, args.sizes, x.data());
  const auto d_weights = dense(args.d_weights, gates, width);
  const auto d_z = dense(args.d_z, rows, gates).transposed();
  const auto steps = dense<const T>(x.data(), rows, width);
  if constexpr (is_compute_type_v<T>) {
    multiply_computed<Api>(d_weights, d_z, steps,
                           std::min(cpu::steps_sum_block(rows), cpu::kernels().sum_block));
  } else {
    multiply_mixed<Api>(d_weights, d_z, steps);
  }
}

template <class Api, class Tensor = typename Api::Tensor>
Gradients<Tensor> sequence_backward_cpu(
    const std::optional<Tensor>& grad_output_, const std::optional<Tensor>& grad_h_n_,
    const std::optional<Tensor>& grad_c_n_, const Tensor& input_, const Tensor& weights_,
    const std::optional<Tensor>& bias_, const Tensor& h0_, const Tensor& c0, const Tensor& output_,
    const Tensor& cells_, const Tensor& gates_, double alpha, const typename Api::Needs& needs) {
  const SequenceSizes sizes =
      check_sequence_backward<Api>(grad_output_, grad_h_n_, grad_c_n_, input_, weights_, bias_, h0_,
                                   c0, output_, cells_, gates_, alpha);
  const int64_t batch = sizes.cell.batch, features = sizes.cell.features, state = sizes.cell.state;
  const int64_t steps = sizes.steps, rows = steps * batch, width = state + features;
  check_needs("sequence_backward", needs, bias_.has_value());

  const Tensor weights = Api::contiguous(weights_), cells = Api::contiguous(cells_),
               gates = Api::contiguous(gates_);
  const auto grad_output = contiguous_or_none<Api>(grad_output_),
             grad_h_n = contiguous_or_none<Api>(grad_h_n_),
             grad_c_n = contiguous_or_none<Api>(grad_c_n_);
  const auto d_h0 = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_input = empty_if<Api>(needs[kInput], input_, {steps, batch, features});
  const auto d_weights = empty_if<Api>(needs[kWeights], input_, {3 * state, width});
  const auto d_bias = empty_like_if<Api>(needs[kBias], bias_);
  const auto d_c0 = empty_if<Api>(needs[kOldCell], input_, {batch, state});

  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Scratch<T> d_z(rows * 3 * state);
    T* d_z_data = d_z.data();
    T* d_h0_data = mutable_data_or_null<Api, T>(d_h0);
    T* d_c0_data = mutable_data_or_null<Api, T>(d_c0);
    const T* grad_h_n_data = data_or_null<Api, T>(grad_h_n);
    const T* grad_c_n_data = data_or_null<Api, T>(grad_c_n);
    sequence_steps_backward<Api, T>({sizes, alpha, Api::template data<T>(weights),
                                     Api::template data<T>(cells), Api::template data<T>(gates),
                                     data_or_null<Api, T>(grad_output), grad_h_n_data,
                                     grad_c_n_data, d_z_data, d_h0_data, d_c0_data});
    if (steps == 0) {
      if (d_h0) pass_through(grad_h_n_data, batch * state, d_h0_data);
      if (d_c0) pass_through(grad_c_n_data, batch * state, d_c0_data);
    }
    const auto d = dense<const T>(d_z_data, rows, 3 * state);
    if (d_input) {
      multiply<Api>(
          dense(Api::template mutable_data<T>(*d_input), rows, features), d,
          dense(Api::template data<T>(weights), 3 * state, width).column_range(state, features));
    }
    if (d_weights) {
      const Tensor h0 = Api::contiguous(h0_), output = Api::contiguous(output_),
                   input = Api::contiguous(input_);
      weight_gradient<Api, T>({sizes, d_z_data, Api::template data<T>(h0),
                               Api::template data<T>(output), Api::template data<T>(input),
                               Api::template mutable_data<T>(*d_weights)});
    }
    if (d_bias) {
      column_sum<Api, T>({rows, 3 * state, d_z_data, Api::template mutable_data<T>(*d_bias)});
    }
  });
  return gradients<Api>(input_, d_input, d_weights, d_bias, d_h0, d_c0);
}

}  // namespace lltm
