// All steps on CUDA tensors: the input's share of the pre-activations in one product before the
// time loop, one product and one kernel a step, the weights' gradient in one product after it.
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "../cuda/kernels.h"
#include "cell_cuda.h"
#include "dispatch.h"
#include "matrix.h"
#include "passes.h"

namespace lltm {

template <class T>
struct CudaSequenceForward {
  SequenceSizes sizes;
  double alpha;
  const T* weights;    // [3S, S + F]
  const T* bias;       // [3S] or null
  const T* h0;         // [B, S]
  const T* c0;         // [B, S]
  const T* projected;  // [T, B, 3S] the input's share of the pre-activations
  T* output;           // [T, B, S]
  T* h_n;              // [B, S]
  T* c_n;              // [B, S]
  T* cells;            // [T, B, S] or null
  T* gates;            // [T, B, 3S] or null
};

template <class T>
struct CudaSequenceBackward {
  SequenceSizes sizes;
  double alpha;
  const T* weights;      // [3S, S + F]
  const T* cells;        // [T, B, S]
  const T* gates;        // [T, B, 3S]
  const T* grad_output;  // [T, B, S] or null
  const T* grad_h_n;     // [B, S] or null
  const T* grad_c_n;     // [B, S] or null
  T* d_z;                // [T, B, 3S]
  T* d_h0;               // [B, S] or null
  T* d_c0;               // [B, S] or null
};

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_steps_cuda(const typename Api::Queue& queue, const CudaSequenceForward<T>& args,
                         const Tensor& like) {
  const int64_t batch = args.sizes.cell.batch, features = args.sizes.cell.features;
  const int64_t state = args.sizes.cell.state;
  const int64_t gates = args.sizes.cell.gates(), plane = batch * state, steps = args.sizes.steps;
  const auto state_weights =
      dense(args.weights, gates, state + features).column_range(0, state).transposed();
  const Tensor recurrent = Api::empty(like, {batch, gates});
  T* recurrent_data = Api::template mutable_data<T>(recurrent);
  const T* h = args.h0;
  const T* cell = args.c0;
  for (int64_t t = 0; t < steps; ++t) {
    Api::matmul(queue, dense(recurrent_data, batch, gates), dense(h, batch, state), state_weights);
    T* new_h = args.output + t * plane;
    T* new_cell = args.cells ? args.cells + t * plane : args.c_n;
    cuda::gates_forward<T>(
        {batch, state, args.alpha, args.projected + t * batch * gates, recurrent_data, args.bias,
         cell, new_h, new_cell, args.gates ? args.gates + t * batch * gates : nullptr},
        queue.stream());
    h = new_h;
    cell = new_cell;
  }
  cuda::copy(args.h_n, h, plane * sizeof(T), queue.stream());
  if (cell != args.c_n) cuda::copy(args.c_n, cell, plane * sizeof(T), queue.stream());
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_loop_cuda(const typename Api::Queue& queue, const CudaSequenceForward<T>& args,
                        const Tensor& like) {
  const int64_t batch = args.sizes.cell.batch, features = args.sizes.cell.features;
  const int64_t state = args.sizes.cell.state;
  const auto plan = cuda::persistent_plan<T>(batch, state);
  if (args.sizes.steps == 0 || !plan.fits()) {
    return sequence_steps_cuda<Api>(queue, args, like);
  }
  const Tensor arrivals = Api::template scratch<float>(like, plan.groups);
  cuda::persistent_forward<T>(
      {args.sizes.steps, batch, state, args.alpha, args.weights, state + features, args.bias,
       args.h0, args.c0, args.projected, args.output, args.h_n, args.c_n, args.cells, args.gates,
       static_cast<unsigned*>(arrivals.mutable_data_ptr())},
      plan, queue.stream());
}

template <class Api, class Tensor = typename Api::Tensor>
SequenceResult<Api> sequence_compute_cuda(const char* op, const Tensor& input_,
                                          const Tensor& weights_,
                                          const std::optional<Tensor>& bias_, const Tensor& h0_,
                                          const Tensor& c0_, double alpha, bool save) {
  const SequenceSizes sizes = check_sequence<Api>(op, input_, weights_, bias_, h0_, c0_, alpha);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const int64_t features = sizes.cell.features, gates = sizes.cell.gates(), plane = batch * state;
  const typename Api::Queue queue(input_);
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               h0 = Api::contiguous(h0_), c0 = Api::contiguous(c0_);
  const auto bias = contiguous_or_none<Api>(bias_);
  SequenceResult<Api> result{Api::empty(input, {steps, batch, state}),
                             Api::empty(input, {batch, state}), Api::empty(input, {batch, state}),
                             std::nullopt, std::nullopt};
  if (save) {
    result.cells = Api::empty(input, {steps, batch, state});
    result.gates = Api::empty(input, {steps, batch, gates});
  }
  if (plane == 0) return result;
  const Tensor projected = Api::empty(input, {steps, batch, gates});
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    T* projected_data = Api::template mutable_data<T>(projected);
    Api::matmul(queue, dense(projected_data, steps * batch, gates),
                dense(Api::template data<T>(input), steps * batch, features),
                dense(Api::template data<T>(weights), gates, state + features)
                    .column_range(state, features)
                    .transposed());
    sequence_loop_cuda<Api, T>(
        queue,
        {sizes, alpha, Api::template data<T>(weights), data_or_null<Api, T>(bias),
         Api::template data<T>(h0), Api::template data<T>(c0), projected_data,
         Api::template mutable_data<T>(result.output), Api::template mutable_data<T>(result.h_n),
         Api::template mutable_data<T>(result.c_n), mutable_data_or_null<Api, T>(result.cells),
         mutable_data_or_null<Api, T>(result.gates)},
        input);
  });
  return result;
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor> sequence_cuda(const Tensor& input, const Tensor& weights,
                                                 const std::optional<Tensor>& bias,
                                                 const Tensor& h0, const Tensor& c0, double alpha) {
  auto r = sequence_compute_cuda<Api>("sequence", input, weights, bias, h0, c0, alpha, false);
  return {r.output, r.h_n, r.c_n};
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> sequence_forward_cuda(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h0,
    const Tensor& c0, double alpha) {
  auto r =
      sequence_compute_cuda<Api>("sequence_forward", input, weights, bias, h0, c0, alpha, true);
  return {r.output, r.h_n, r.c_n, *r.cells, *r.gates};
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_steps_backward_cuda(const typename Api::Queue& queue,
                                  const CudaSequenceBackward<T>& args, const Tensor& like) {
  using V = cuda::compute_t<T>;
  const int64_t batch = args.sizes.cell.batch, features = args.sizes.cell.features;
  const int64_t state = args.sizes.cell.state;
  const int64_t gates = args.sizes.cell.gates(), plane = batch * state, steps = args.sizes.steps;
  const auto state_weights = dense(args.weights, gates, state + features).column_range(0, state);
  // Gradients that pass from a step to the one before it.
  const Tensor d_h = Api::empty(like, {batch, state});
  const Tensor carry = Api::template scratch<V>(like, plane);
  T* d_h_data = Api::template mutable_data<T>(d_h);
  V* carry_data = static_cast<V*>(carry.mutable_data_ptr());
  for (int64_t t = steps - 1; t >= 0; --t) {
    const bool last = t == steps - 1;
    T* d_z = args.d_z + t * batch * gates;
    cuda::gates_backward<T>(
        {batch, state, args.alpha, args.gates + t * batch * gates, args.cells + t * plane,
         args.grad_output ? args.grad_output + t * plane : nullptr, last ? args.grad_h_n : d_h_data,
         last ? args.grad_c_n : nullptr, last ? nullptr : carry_data, carry_data,
         t == 0 ? args.d_c0 : nullptr, d_z},
        queue.stream());
    T* to = t > 0 ? d_h_data : args.d_h0;
    if (to) {
      Api::matmul(queue, dense(to, batch, state), dense<const T>(d_z, batch, gates), state_weights);
    }
  }
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_loop_backward_cuda(const typename Api::Queue& queue,
                                 const CudaSequenceBackward<T>& args, const Tensor& like) {
  using V = cuda::compute_t<T>;
  const int64_t batch = args.sizes.cell.batch, features = args.sizes.cell.features;
  const int64_t state = args.sizes.cell.state;
  const auto plan = cuda::persistent_plan<T>(batch, state);
  if (!plan.fits()) return sequence_steps_backward_cuda<Api>(queue, args, like);
  const Tensor carry = Api::template scratch<V>(like, batch * state);
  const Tensor arrivals = Api::template scratch<float>(like, plan.groups);
  cuda::persistent_backward<T>(
      {args.sizes.steps, batch, state, args.alpha, args.weights, state + features, args.cells,
       args.gates, args.grad_output, args.grad_h_n, args.grad_c_n, args.d_z, args.d_h0, args.d_c0,
       static_cast<V*>(carry.mutable_data_ptr()),
       static_cast<unsigned*>(arrivals.mutable_data_ptr())},
      plan, queue.stream());
}

// The gradient that the states get when there is no step in between.
template <class Api, class T>
void pass_through_cuda(const typename Api::Queue& queue, const T* grad, int64_t count, T* to) {
  if (!to) return;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  grad ? cuda::copy(to, grad, bytes, queue.stream()) : cuda::clear(to, bytes, queue.stream());
}

template <class Api, class Tensor = typename Api::Tensor>
Gradients<Tensor> sequence_backward_cuda(
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

  const typename Api::Queue queue(input_);
  const Tensor weights = Api::contiguous(weights_), cells = Api::contiguous(cells_),
               gates = Api::contiguous(gates_);
  const auto grad_output = contiguous_or_none<Api>(grad_output_),
             grad_h_n = contiguous_or_none<Api>(grad_h_n_),
             grad_c_n = contiguous_or_none<Api>(grad_c_n_);
  const Tensor d_z = Api::empty(input_, {steps, batch, sizes.cell.gates()});
  const auto d_input = empty_if<Api>(needs[kInput], input_, {steps, batch, features});
  const auto d_weights = empty_if<Api>(needs[kWeights], input_, {sizes.cell.gates(), width});
  const auto d_bias = empty_like_if<Api>(needs[kBias], bias_);
  const auto d_h0 = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_c0 = empty_if<Api>(needs[kOldCell], input_, {batch, state});

  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const CudaSequenceBackward<T> args{sizes,
                                       alpha,
                                       Api::template data<T>(weights),
                                       Api::template data<T>(cells),
                                       Api::template data<T>(gates),
                                       data_or_null<Api, T>(grad_output),
                                       data_or_null<Api, T>(grad_h_n),
                                       data_or_null<Api, T>(grad_c_n),
                                       Api::template mutable_data<T>(d_z),
                                       mutable_data_or_null<Api, T>(d_h0),
                                       mutable_data_or_null<Api, T>(d_c0)};
    if (steps == 0) {
      pass_through_cuda<Api, T>(queue, args.grad_h_n, batch * state, args.d_h0);
      pass_through_cuda<Api, T>(queue, args.grad_c_n, batch * state, args.d_c0);
    } else if (batch * state > 0) {
      sequence_loop_backward_cuda<Api, T>(queue, args, input_);
    }
    const auto d = dense<const T>(args.d_z, rows, sizes.cell.gates());
    if (d_input) {
      Api::matmul(queue, dense(Api::template mutable_data<T>(*d_input), rows, features), d,
                  dense(args.weights, sizes.cell.gates(), width).column_range(state, features));
    }
    if (d_weights) {
      const Tensor h0 = Api::contiguous(h0_), output = Api::contiguous(output_),
                   input = Api::contiguous(input_);
      const Tensor x = concatenated_cuda<Api, T>(queue, h0, Api::template data<T>(output), input,
                                                 rows, sizes.cell);
      Api::matmul(queue,
                  dense(Api::template mutable_data<T>(*d_weights), sizes.cell.gates(), width),
                  d.transposed(), dense(Api::template data<T>(x), rows, width));
    }
    if (d_bias) bias_gradient_cuda<Api, T>(queue, d_z, rows, sizes.cell.gates(), *d_bias);
  });
  return gradients<Api>(input_, d_input, d_weights, d_bias, d_h0, d_c0);
}

}  // namespace lltm
