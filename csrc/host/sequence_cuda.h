// All steps on CUDA tensors: the input's share of the pre-activations in one product before the
// time loop, one product and one kernel a step, the weights' gradient in one product after it.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "../contract.h"
#include "../cuda/kernels.h"
#include "cell_cuda.h"
#include "dispatch.h"
#include "matrix.h"
#include "passes.h"

namespace lltm {

// A step's states on the way, [B, S] each: those before step t, and where step t writes its own.
template <class T, class Args>
const T* state_before(const Args& args, int i, int64_t t, int64_t plane) {
  if (t == 0) return args.first[i];
  if (i == 0) return args.output + (t - 1) * plane;
  return args.states + ((t - 1) * (Cell::kStates - 1) + i - 1) * plane;
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_steps_cuda(const typename Api::Queue& queue, const SequenceForward<T>& args,
                         const T* projected, const Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const int64_t batch = sizes.batch, gates = sizes.gates(), plane = batch * sizes.state;
  const auto weights =
      dense(args.weights, gates, sizes.width()).column_range(0, sizes.head()).transposed();
  const Tensor recurrent = Api::empty(like, {batch, gates});
  T* recurrent_data = Api::template mutable_data<T>(recurrent);
  cuda::GatesForward<T> step{batch, sizes.state, args.scalars};
  step.z_recurrent = recurrent_data;
  step.bias = args.bias;
  std::copy_n(args.first, Cell::kStates, step.old_state);
  for (int64_t t = 0; t < args.sizes.steps; ++t) {
    Api::matmul(queue, dense(recurrent_data, batch, gates),
                dense(step.old_state[0], batch, sizes.state), weights);
    step.z_input = projected + t * batch * gates;
    step.new_state[0] = args.output + t * plane;
    for (int i = 1; i < Cell::kStates; ++i) {
      step.new_state[i] =
          args.states ? args.states + (t * (Cell::kStates - 1) + i - 1) * plane : args.last[i];
    }
    if (args.saved) step.saved = args.saved + t * plane * Cell::kSaved;
    cuda::gates_forward(step, queue.stream());
    std::copy_n(step.new_state, Cell::kStates, step.old_state);
  }
  for (int i = 0; i < Cell::kStates; ++i) {
    if (step.old_state[i] == args.last[i]) continue;
    cuda::copy(args.last[i], step.old_state[i], plane * sizeof(T), queue.stream());
  }
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_loop_cuda(const typename Api::Queue& queue, const SequenceForward<T>& args,
                        const T* projected, const Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const auto plan = cuda::persistent_plan<T>(sizes.batch, sizes.state);
  if (args.sizes.steps == 0 || !plan.fits()) {
    return sequence_steps_cuda<Api>(queue, args, projected, like);
  }
  const Tensor arrivals = Api::template scratch<float>(like, plan.groups);
  cuda::PersistentForward<T> all{args.sizes.steps, sizes.batch, sizes.state, args.scalars};
  all.weights = args.weights;
  all.weights_stride = sizes.width();
  all.bias = args.bias;
  std::copy_n(args.first, Cell::kStates, all.first);
  all.projected = projected;
  all.output = args.output;
  std::copy_n(args.last, Cell::kStates, all.last);
  all.states = args.states;
  all.saved = args.saved;
  all.arrivals = static_cast<unsigned*>(arrivals.mutable_data_ptr());
  cuda::persistent_forward(all, plan, queue.stream());
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
    result.gates = Api::empty(input, {steps, batch, Cell::kSaved * state});
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
    SequenceForward<T> args{sizes, {alpha}};
    args.weights = Api::template data<T>(weights);
    args.bias = data_or_null<Api, T>(bias);
    args.first[0] = Api::template data<T>(h0);
    args.first[1] = Api::template data<T>(c0);
    args.output = Api::template mutable_data<T>(result.output);
    args.last[0] = Api::template mutable_data<T>(result.h_n);
    args.last[1] = Api::template mutable_data<T>(result.c_n);
    args.states = mutable_data_or_null<Api, T>(result.cells);
    args.saved = mutable_data_or_null<Api, T>(result.gates);
    sequence_loop_cuda<Api, T>(queue, args, projected_data, input);
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
void sequence_steps_backward_cuda(const typename Api::Queue& queue, const SequenceBackward<T>& args,
                                  const Tensor& like) {
  using V = cuda::compute_t<T>;
  const CellSizes& sizes = args.sizes.cell;
  const int64_t batch = sizes.batch, gates = sizes.gates(), plane = batch * sizes.state;
  const auto weights = dense(args.weights, gates, sizes.width()).column_range(0, sizes.head());
  // Gradients that pass from a step to the one before it.
  const Tensor d_h = Api::empty(like, {batch, sizes.state});
  const Tensor carry = Api::template scratch<V>(like, Cell::kStates * plane);
  T* d_h_data = Api::template mutable_data<T>(d_h);
  V* carry_data = static_cast<V*>(carry.mutable_data_ptr());
  cuda::GatesBackward<T> step{batch, sizes.state, args.scalars};
  std::copy_n(args.grad_last, Cell::kStates, step.grad_state);
  step.grad_h_extra = args.grad_last[0];
  for (int i = 0; i < Cell::kStates; ++i) step.carry_out[i] = carry_data + i * plane;
  for (int64_t t = args.sizes.steps - 1; t >= 0; --t) {
    step.saved = args.saved + t * plane * Cell::kSaved;
    for (int i = 0; i < Cell::kStates; ++i) {
      step.old_state[i] = state_before<T>(args, i, t, plane);
      step.new_state[i] = state_before<T>(args, i, t + 1, plane);
      if (t == 0) step.d_old_state[i] = args.d_first[i];
    }
    step.grad_state[0] = args.grad_output ? args.grad_output + t * plane : nullptr;
    for (int i = 0; i < kShares; ++i) step.d_z[i] = args.d_z[i] + t * batch * gates;
    cuda::gates_backward(step, queue.stream());
    T* to = t > 0 ? d_h_data : args.d_first[0];
    if (to) {
      Api::matmul(queue, dense(to, batch, sizes.state),
                  dense<const T>(step.d_z[kRecurrentShare], batch, gates), weights);
    }
    step.grad_h_extra = d_h_data;
    std::fill_n(step.grad_state, Cell::kStates, nullptr);
    std::copy_n(step.carry_out, Cell::kStates, step.carry_in);
  }
}

template <class Api, class T, class Tensor = typename Api::Tensor>
void sequence_loop_backward_cuda(const typename Api::Queue& queue, const SequenceBackward<T>& args,
                                 const Tensor& like) {
  using V = cuda::compute_t<T>;
  const CellSizes& sizes = args.sizes.cell;
  const auto plan = cuda::persistent_plan<T>(sizes.batch, sizes.state);
  if (!plan.fits()) return sequence_steps_backward_cuda<Api>(queue, args, like);
  const Tensor carry = Api::template scratch<V>(like, Cell::kStates * sizes.batch * sizes.state);
  const Tensor arrivals = Api::template scratch<float>(like, plan.groups);
  cuda::PersistentBackward<T> all{args.sizes.steps, sizes.batch, sizes.state, args.scalars};
  all.weights = args.weights;
  all.weights_stride = sizes.width();
  std::copy_n(args.first, Cell::kStates, all.first);
  all.output = args.output;
  all.states = args.states;
  all.saved = args.saved;
  all.grad_output = args.grad_output;
  std::copy_n(args.grad_last, Cell::kStates, all.grad_last);
  std::copy_n(args.d_z, kShares, all.d_z);
  std::copy_n(args.d_first, Cell::kStates, all.d_first);
  all.carry = static_cast<V*>(carry.mutable_data_ptr());
  all.arrivals = static_cast<unsigned*>(arrivals.mutable_data_ptr());
  cuda::persistent_backward(all, plan, queue.stream());
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
    const std::optional<Tensor>& bias_, const Tensor& h0_, const Tensor& c0_, const Tensor& output_,
    const Tensor& cells_, const Tensor& gates_, double alpha, const typename Api::Needs& needs) {
  const SequenceSizes sizes =
      check_sequence_backward<Api>(grad_output_, grad_h_n_, grad_c_n_, input_, weights_, bias_, h0_,
                                   c0_, output_, cells_, gates_, alpha);
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
    const Tensor h0 = Api::contiguous(h0_), c0 = Api::contiguous(c0_),
                 output = Api::contiguous(output_);
    SequenceBackward<T> args{sizes, {alpha}};
    args.weights = Api::template data<T>(weights);
    args.first[0] = Api::template data<T>(h0);
    args.first[1] = Api::template data<T>(c0);
    args.output = Api::template data<T>(output);
    args.states = Api::template data<T>(cells);
    args.saved = Api::template data<T>(gates);
    args.grad_output = data_or_null<Api, T>(grad_output);
    args.grad_last[0] = data_or_null<Api, T>(grad_h_n);
    args.grad_last[1] = data_or_null<Api, T>(grad_c_n);
    args.d_z[0] = Api::template mutable_data<T>(d_z);
    args.d_first[0] = mutable_data_or_null<Api, T>(d_h0);
    args.d_first[1] = mutable_data_or_null<Api, T>(d_c0);
    if (steps == 0) {
      for (int i = 0; i < Cell::kStates; ++i) {
        pass_through_cuda<Api, T>(queue, args.grad_last[i], batch * state, args.d_first[i]);
      }
    } else if (batch * state > 0) {
      sequence_loop_backward_cuda<Api, T>(queue, args, input_);
    }
    const auto d = dense<const T>(args.d_z[0], rows, sizes.cell.gates());
    if (d_input) {
      Api::matmul(queue, dense(Api::template mutable_data<T>(*d_input), rows, features), d,
                  dense(args.weights, sizes.cell.gates(), width).column_range(state, features));
    }
    if (d_weights) {
      const Tensor input = Api::contiguous(input_);
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
