// One step on CUDA tensors: check, guard, allocate, multiply, launch.
//
// What differs from the CPU is that nothing here may look at a result: every function only queues
// work on the current stream of the input's device (Api::Queue) and returns.
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "../cuda/kernels.h"
#include "dispatch.h"
#include "matrix.h"
#include "passes.h"

namespace lltm {

// X = [h before the step, input] of every step, [rows, S + F]; `output` is null for one step.
template <class Api, class T, class Tensor = typename Api::Tensor>
Tensor concatenated_cuda(const typename Api::Queue& queue, const Tensor& h0, const T* output,
                         const Tensor& input, int64_t rows, const CellSizes& sizes) {
  const Tensor x = Api::empty(input, {rows, sizes.state + sizes.features});
  cuda::concatenate<T>({rows, sizes.batch, sizes.features, sizes.state, Api::template data<T>(h0),
                        output, Api::template data<T>(input), Api::template mutable_data<T>(x)},
                       queue.stream());
  return x;
}

// d_bias = sum of d_z over its rows.
template <class Api, class T, class Tensor = typename Api::Tensor>
void bias_gradient_cuda(const typename Api::Queue& queue, const Tensor& d_z, int64_t rows,
                        int64_t columns, const Tensor& d_bias) {
  using V = cuda::compute_t<T>;
  const Tensor partials = Api::template scratch<V>(d_z, cuda::column_sum_partials(rows) * columns);
  cuda::column_sum<T>(
      {rows, columns, Api::template data<T>(d_z), Api::template mutable_data<T>(d_bias),
       static_cast<V*>(partials.mutable_data_ptr())},
      queue.stream());
}

template <class Api, class Tensor = typename Api::Tensor>
CellResult<Api> cell_compute_cuda(const char* op, const Tensor& input_, const Tensor& weights_,
                                  const std::optional<Tensor>& bias_, const Tensor& old_h_,
                                  const Tensor& old_cell_, double alpha, bool save) {
  const CellSizes sizes = check_cell<Api>(op, input_, weights_, bias_, old_h_, old_cell_, alpha);
  const typename Api::Queue queue(input_);
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               old_h = Api::contiguous(old_h_), old_cell = Api::contiguous(old_cell_);
  const auto bias = contiguous_or_none<Api>(bias_);
  const int64_t width = sizes.state + sizes.features, gates = sizes.gates();
  CellResult<Api> result{Api::empty(input, {sizes.batch, sizes.state}),
                         Api::empty(input, {sizes.batch, sizes.state}), std::nullopt};
  if (save) result.gates = Api::empty(input, {sizes.batch, Cell::kSaved * sizes.state});
  if (sizes.batch == 0 || sizes.state == 0) return result;

  const Tensor z = Api::empty(input, {sizes.batch, gates});
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor x = concatenated_cuda<Api, T>(queue, old_h, nullptr, input, sizes.batch, sizes);
    T* z_data = Api::template mutable_data<T>(z);
    Api::matmul(queue, dense(z_data, sizes.batch, gates),
                dense(Api::template data<T>(x), sizes.batch, width),
                dense(Api::template data<T>(weights), gates, width).transposed());
    cuda::GatesForward<T> step{sizes.batch, sizes.state, {alpha}};
    step.z_input = z_data;
    step.bias = data_or_null<Api, T>(bias);
    step.old_state[0] = Api::template data<T>(old_h);
    step.old_state[1] = Api::template data<T>(old_cell);
    step.new_state[0] = Api::template mutable_data<T>(result.new_h);
    step.new_state[1] = Api::template mutable_data<T>(result.new_cell);
    step.saved = mutable_data_or_null<Api, T>(result.gates);
    cuda::gates_forward(step, queue.stream());
  });
  return result;
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor> cell_cuda(const Tensor& input, const Tensor& weights,
                                     const std::optional<Tensor>& bias, const Tensor& old_h,
                                     const Tensor& old_cell, double alpha) {
  auto result = cell_compute_cuda<Api>("cell", input, weights, bias, old_h, old_cell, alpha, false);
  return {result.new_h, result.new_cell};
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor> cell_forward_cuda(const Tensor& input, const Tensor& weights,
                                                     const std::optional<Tensor>& bias,
                                                     const Tensor& old_h, const Tensor& old_cell,
                                                     double alpha) {
  auto result =
      cell_compute_cuda<Api>("cell_forward", input, weights, bias, old_h, old_cell, alpha, true);
  return {result.new_h, result.new_cell, *result.gates};
}

template <class Api, class Tensor = typename Api::Tensor>
Gradients<Tensor> cell_backward_cuda(const std::optional<Tensor>& grad_h_,
                                     const std::optional<Tensor>& grad_cell_, const Tensor& input_,
                                     const Tensor& weights_, const std::optional<Tensor>& bias_,
                                     const Tensor& old_h_, const Tensor& old_cell,
                                     const Tensor& new_cell_, const Tensor& gates_, double alpha,
                                     const typename Api::Needs& needs) {
  const CellSizes sizes = check_cell_backward<Api>(grad_h_, grad_cell_, input_, weights_, bias_,
                                                   old_h_, old_cell, new_cell_, gates_, alpha);
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  check_needs("cell_backward", needs, bias_.has_value());
  const typename Api::Queue queue(input_);
  const Tensor weights = Api::contiguous(weights_), new_cell = Api::contiguous(new_cell_),
               gates = Api::contiguous(gates_);
  const auto grad_h = contiguous_or_none<Api>(grad_h_),
             grad_cell = contiguous_or_none<Api>(grad_cell_);
  const Tensor d_z = Api::empty(input_, {batch, sizes.gates()});
  const auto d_input = empty_if<Api>(needs[kInput], input_, {batch, features});
  const auto d_weights = empty_if<Api>(needs[kWeights], input_, {sizes.gates(), state + features});
  const auto d_bias = empty_like_if<Api>(needs[kBias], bias_);
  const auto d_old_h = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_old_cell = empty_if<Api>(needs[kOldCell], input_, {batch, state});

  const int64_t width = state + features;
  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    T* d_z_data = Api::template mutable_data<T>(d_z);
    cuda::GatesBackward<T> step{batch, state, {alpha}};
    step.saved = Api::template data<T>(gates);
    step.new_state[1] = Api::template data<T>(new_cell);
    step.grad_state[0] = data_or_null<Api, T>(grad_h);
    step.grad_state[1] = data_or_null<Api, T>(grad_cell);
    step.d_old_state[1] = mutable_data_or_null<Api, T>(d_old_cell);
    step.d_z[0] = d_z_data;
    cuda::gates_backward(step, queue.stream());
    const auto d = dense<const T>(d_z_data, batch, sizes.gates());
    const auto w = dense(Api::template data<T>(weights), sizes.gates(), width);
    if (d_input) {
      Api::matmul(queue, dense(Api::template mutable_data<T>(*d_input), batch, features), d,
                  w.column_range(state, features));
    }
    if (d_old_h) {
      Api::matmul(queue, dense(Api::template mutable_data<T>(*d_old_h), batch, state), d,
                  w.column_range(0, state));
    }
    if (d_weights) {
      const Tensor x = concatenated_cuda<Api, T>(queue, Api::contiguous(old_h_), nullptr,
                                                 Api::contiguous(input_), batch, sizes);
      Api::matmul(queue, dense(Api::template mutable_data<T>(*d_weights), sizes.gates(), width),
                  d.transposed(), dense(Api::template data<T>(x), batch, width));
    }
    if (d_bias) bias_gradient_cuda<Api, T>(queue, d_z, batch, sizes.gates(), *d_bias);
  });
  return gradients<Api>(input_, d_input, d_weights, d_bias, d_old_h, d_old_cell);
}

}  // namespace lltm
