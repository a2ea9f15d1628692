// All steps of the LLTM on CPU tensors: check, allocate, and the steps.
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "dispatch.h"
#include "matrix.h"
#include "parallel.h"
#include "passes.h"
#include "scratch.h"
#include "steps.h"

namespace lltm {

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
    result.gates = Api::empty(input, {steps, batch, Cell::kSaved * state});
  }
  if (batch * state == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceForward<T> args{sizes, {alpha}};
    args.input = Api::template data<T>(input);
    args.weights = Api::template data<T>(weights);
    args.bias = data_or_null<Api, T>(bias);
    args.first[0] = Api::template data<T>(h0);
    args.first[1] = Api::template data<T>(c0);
    args.output = Api::template mutable_data<T>(result.output);
    args.last[0] = Api::template mutable_data<T>(result.h_n);
    args.last[1] = Api::template mutable_data<T>(result.c_n);
    args.states = mutable_data_or_null<Api, T>(result.cells);
    args.saved = mutable_data_or_null<Api, T>(result.gates);
    sequence_steps_forward<Api>(args);
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

template <class Api, class Tensor = typename Api::Tensor>
Gradients<Tensor> sequence_backward_cpu(
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

  const Tensor weights = Api::contiguous(weights_), cells = Api::contiguous(cells_),
               gates = Api::contiguous(gates_);
  const auto grad_output = contiguous_or_none<Api>(grad_output_),
             grad_h_n = contiguous_or_none<Api>(grad_h_n_),
             grad_c_n = contiguous_or_none<Api>(grad_c_n_);
  const auto d_h0 = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_input = empty_if<Api>(needs[kInput], input_, {steps, batch, features});
  const auto d_weights = empty_if<Api>(needs[kWeights], input_, {Cell::kGates * state, width});
  const auto d_bias = empty_like_if<Api>(needs[kBias], bias_);
  const auto d_c0 = empty_if<Api>(needs[kOldCell], input_, {batch, state});

  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t gates_of_step = sizes.cell.gates();
    const Scratch<T> d_z(rows * gates_of_step);
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
    args.d_z[0] = d_z.data();
    args.d_first[0] = mutable_data_or_null<Api, T>(d_h0);
    args.d_first[1] = mutable_data_or_null<Api, T>(d_c0);
    sequence_steps_backward<Api>(args);
    const auto d = dense<const T>(d_z.data(), rows, gates_of_step);
    if (d_input) {
      multiply<Api>(dense(Api::template mutable_data<T>(*d_input), rows, features), d,
                    dense(args.weights, gates_of_step, width).column_range(state, features));
    }
    if (d_weights) {
      const Tensor input = Api::contiguous(input_);
      weight_gradient<Api, T>({sizes,
                               {d_z.data()},
                               args.first[0],
                               args.output,
                               Api::template data<T>(input),
                               {},
                               Api::template mutable_data<T>(*d_weights)});
    }
    if (d_bias) {
      column_sum<Api, T>({rows, gates_of_step, d_z.data(), Api::template mutable_data<T>(*d_bias)});
    }
  });
  return gradients<Api>(input_, d_input, d_weights, d_bias, d_h0, d_c0);
}

}  // namespace lltm
