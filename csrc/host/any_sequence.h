// All steps of any cell on the tensors of any device: check, allocate, and what the device makes of
// them (CpuDevice, CudaDevice).
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "../cell_contract.h"
#include "dispatch.h"
#include "passes.h"

namespace lltm {
inline namespace LLTM_CELL {

// [N, B, S], contiguous -> [B, S] of each state, or nothing.
template <class Api, class T, class Tensor>
void split_states(const std::optional<Tensor>& tensor, int64_t plane,
                  const T* (&states)[Cell::kStates]) {
  if (!tensor) return;
  const T* data = Api::template data<T>(*tensor);
  for (int i = 0; i < Cell::kStates; ++i) states[i] = data + i * plane;
}
template <class Api, class T, class Tensor>
void split_states(const std::optional<Tensor>& tensor, int64_t plane, T* (&states)[Cell::kStates]) {
  if (!tensor) return;
  T* data = Api::template mutable_data<T>(*tensor);
  for (int i = 0; i < Cell::kStates; ++i) states[i] = data + i * plane;
}

inline Scalars scalars_of(const std::vector<double>& values) {
  Scalars scalars{};
  std::copy_n(values.begin(), Cell::kScalars, scalars.values);
  return scalars;
}

// The arguments, contiguous.
template <class Api, class Tensor = typename Api::Tensor>
struct AnyTensors {
  Tensor input, weights;
  std::optional<Tensor> bias, states, reset, reset_state, input_weights;

  explicit AnyTensors(const AnyArguments<Tensor>& args)
      : input(Api::contiguous(args.input)),
        weights(Api::contiguous(args.weights)),
        bias(contiguous_or_none<Api>(args.bias)),
        states(Api::contiguous(args.states)),
        reset(contiguous_or_none<Api>(args.reset)),
        reset_state(contiguous_or_none<Api>(args.reset_state)),
        input_weights(contiguous_or_none<Api>(args.input_weights)) {}

  template <class T>
  SequenceWeights<T> sequence_weights(const CellSizes& sizes) const {
    const T* data = Api::template data<T>(weights);
    if (!input_weights) return {data, sizes};
    return {data, Api::template data<T>(*input_weights), sizes};
  }

  template <class T>
  Resets<T> resets(int64_t plane) const {
    Resets<T> resets;
    resets.rows = data_or_null<Api, bool>(reset);
    split_states<Api>(reset_state, plane, resets.state);
    return resets;
  }
};

template <class Tensor>
struct AnyResult {
  Tensor output, last;
  std::optional<Tensor> states_all, saved;
};

template <class Device, class Tensor = TensorOf<Device>>
AnyResult<Tensor> any_sequence_compute(const char* op, const AnyArguments<Tensor>& arguments,
                                       bool save) {
  using Api = typename Device::Api;
  const SequenceSizes sizes = check_any_sequence<Api>(op, arguments);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const Device device(arguments.input);
  const AnyTensors<Api> of(arguments);
  AnyResult<Tensor> result{Api::empty(of.input, {steps, batch, state}),
                           Api::empty(of.input, {Cell::kStates, batch, state}), std::nullopt,
                           std::nullopt};
  if (save) {
    result.states_all = Api::empty(of.input, {steps, Cell::kStates - 1, batch, state});
    result.saved = Api::empty(of.input, {steps, batch, Cell::kSaved * state});
  }
  const int64_t plane = batch * state;
  if (plane == 0) return result;
  dispatch(of.input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceForward<T> args{sizes, scalars_of(arguments.scalars)};
    args.input = Api::template data<T>(of.input);
    args.weights = of.template sequence_weights<T>(sizes.cell);
    args.bias = data_or_null<Api, T>(of.bias);
    split_states<Api>(of.states, plane, args.first);
    args.resets = of.template resets<T>(plane);
    args.output = Api::template mutable_data<T>(result.output);
    split_states<Api>(std::optional<Tensor>(result.last), plane, args.last);
    args.states = mutable_data_or_null<Api, T>(result.states_all);
    args.saved = mutable_data_or_null<Api, T>(result.saved);
    device.run(args, of.input);
  });
  return result;
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor> any_sequence_op(const Tensor& input, const Tensor& weights,
                                           const std::optional<Tensor>& bias, const Tensor& states,
                                           const std::vector<double>& scalars,
                                           const std::optional<Tensor>& reset,
                                           const std::optional<Tensor>& reset_state,
                                           const std::optional<Tensor>& input_weights) {
  const auto r = any_sequence_compute<Device, Tensor>(
      "sequence", {input, weights, bias, states, scalars, reset, reset_state, input_weights},
      false);
  return {r.output, r.last};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor, Tensor> any_sequence_forward_op(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias,
    const Tensor& states, const std::vector<double>& scalars, const std::optional<Tensor>& reset,
    const std::optional<Tensor>& reset_state) {
  const auto r = any_sequence_compute<Device, Tensor>(
      "sequence_forward", {input, weights, bias, states, scalars, reset, reset_state, std::nullopt},
      true);
  return {r.output, r.last, *r.states_all, *r.saved};
}

template <class Api, class Tensor = typename Api::Tensor>
SequenceSizes check_any_backward(const AnyArguments<Tensor>& args,
                                 const std::optional<Tensor>& grad_output,
                                 const std::optional<Tensor>& grad_last, const Tensor& output,
                                 const Tensor& states_all, const Tensor& saved,
                                 const typename Api::Needs& needs) {
  const char* op = "sequence_backward";
  const SequenceSizes sizes = check_any_sequence<Api>(op, args);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const auto check = [&](const char* name, const Tensor& tensor, const char* terms,
                         std::initializer_list<int64_t> expected) {
    check_backward<Api>(op, name, tensor, args.input, terms, expected);
  };
  check("output", output, "[T, B, S]", {steps, batch, state});
  check("states_all", states_all, "[T, N - 1, B, S]", {steps, Cell::kStates - 1, batch, state});
  check("saved", saved, ("[T, B, " + of_state(Cell::kSaved) + "]").c_str(),
        {steps, batch, Cell::kSaved * state});
  if (grad_output) check("grad_output", *grad_output, "[T, B, S]", {steps, batch, state});
  if (grad_last) check("grad_last", *grad_last, "[N, B, S]", {Cell::kStates, batch, state});
  check_needs(op, needs, args.bias.has_value());
  STD_TORCH_CHECK(args.reset_state.has_value() || !needs[kResetState], "lltm::", op,
                  ": needs_input_grad asks for the gradient of reset_state, which is None");
  return sizes;
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> any_sequence_backward_op(
    const std::optional<Tensor>& grad_output_, const std::optional<Tensor>& grad_last_,
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias,
    const Tensor& states, const std::vector<double>& scalars, const std::optional<Tensor>& reset,
    const std::optional<Tensor>& reset_state, const Tensor& output_, const Tensor& states_all_,
    const Tensor& saved_, const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const std::optional<Tensor> none;
  const AnyArguments<Tensor> arguments{input,   weights, bias,        states,
                                       scalars, reset,   reset_state, none};
  const SequenceSizes sizes = check_any_backward<Api>(arguments, grad_output_, grad_last_, output_,
                                                      states_all_, saved_, needs);
  const int64_t batch = sizes.cell.batch, state = sizes.cell.state, plane = batch * state;
  const Device device(input);
  const AnyTensors<Api> of(arguments);
  const Tensor output = Api::contiguous(output_), states_all = Api::contiguous(states_all_),
               saved = Api::contiguous(saved_);
  const auto grad_output = contiguous_or_none<Api>(grad_output_),
             grad_last = contiguous_or_none<Api>(grad_last_);
  const GradientTensors<Api> d(needs, input, sizes.cell, bias,
                               {sizes.steps, batch, sizes.cell.features});
  const auto d_states = empty_if<Api>(needs[kStates], input, {Cell::kStates, batch, state}),
             d_reset_state =
                 empty_if<Api>(needs[kResetState], input, {Cell::kStates, batch, state});
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceBackward<T> args{sizes, scalars_of(scalars)};
    args.input = Api::template data<T>(of.input);
    args.weights = Api::template data<T>(of.weights);
    split_states<Api>(of.states, plane, args.first);
    args.resets = of.template resets<T>(plane);
    args.output = Api::template data<T>(output);
    args.states = Api::template data<T>(states_all);
    args.saved = Api::template data<T>(saved);
    args.grad_output = data_or_null<Api, T>(grad_output);
    split_states<Api>(grad_last, plane, args.grad_last);
    args.d = d.template data<T>();
    split_states<Api>(d_states, plane, args.d_first);
    split_states<Api>(d_reset_state, plane, args.d_reset_state);
    device.run(args, input);
  });
  return d.with(input, d_states, d_reset_state);
}

}  // namespace LLTM_CELL
}  // namespace lltm
