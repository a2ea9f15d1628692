// The ops of any cell, whose states come as one tensor.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "../checks.h"
#include "sequence.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Tensor>
Arguments<Tensor> any_arguments(const Tensor& input, const Tensor& weights,
                                const std::optional<Tensor>& bias, const Tensor& states,
                                const std::optional<Tensor>& reset,
                                const std::optional<Tensor>& reset_state,
                                const Tensor* input_weights = nullptr) {
  return {input,
          weights,
          bias,
          {true, {{"states", &states}}},
          /*is_step=*/false,
          /*may_have_heads=*/true,
          input_weights,
          pointer_or_null(reset),
          {true, {{"reset_state", pointer_or_null(reset_state)}}}};
}

inline Scalars check_scalars(const char* op, const std::vector<double>& values) {
  STD_TORCH_CHECK(values.size() == static_cast<size_t>(Cell::kScalars), "lltm::", op,
                  ": scalars must have ", Cell::kScalars, " numbers, got ", values.size());
  Scalars scalars{};
  std::copy_n(values.begin(), Cell::kScalars, scalars.values);
  return scalars;
}

template <class Device, class Tensor = TensorOf<Device>>
SequenceResult<typename Device::Api> any_sequence(const char* op, const Arguments<Tensor>& args,
                                                  const std::vector<double>& scalars, bool save) {
  const SequenceSizes sizes = check_arguments<typename Device::Api>(op, args);
  return sequence_compute<Device, Tensor>(args, sizes, check_scalars(op, scalars), save);
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor> any_sequence_op(const Tensor& input, const Tensor& weights,
                                           const std::optional<Tensor>& bias, const Tensor& states,
                                           const std::vector<double>& scalars,
                                           const std::optional<Tensor>& reset,
                                           const std::optional<Tensor>& reset_state,
                                           const std::optional<Tensor>& input_weights) {
  const auto args = any_arguments(input, weights, bias, states, reset, reset_state,
                                  pointer_or_null(input_weights));
  const auto r = any_sequence<Device>("sequence", args, scalars, false);
  return {r.output, *r.last[0]};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor, Tensor> any_sequence_forward_op(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias,
    const Tensor& states, const std::vector<double>& scalars, const std::optional<Tensor>& reset,
    const std::optional<Tensor>& reset_state) {
  const auto args = any_arguments(input, weights, bias, states, reset, reset_state);
  const auto r = any_sequence<Device>("sequence_forward", args, scalars, true);
  return {r.output, *r.last[0], *r.states, *r.saved};
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> any_sequence_backward_op(
    const std::optional<Tensor>& grad_output, const std::optional<Tensor>& grad_last,
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias,
    const Tensor& states, const std::vector<double>& scalars, const std::optional<Tensor>& reset,
    const std::optional<Tensor>& reset_state, const Tensor& output, const Tensor& states_all,
    const Tensor& saved, const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const char* op = "sequence_backward";
  const auto args = any_arguments(input, weights, bias, states, reset, reset_state);
  const BackwardArguments<Tensor> backward{pointer_or_null(grad_output),
                                           {true, {{"grad_last", pointer_or_null(grad_last)}}},
                                           &output,
                                           {"states_all", &states_all},
                                           {"saved", &saved}};
  const SequenceSizes sizes = check_arguments<Api>(op, args);
  const Scalars values = check_scalars(op, scalars);
  check_backward<Api>(op, args, backward, sizes);
  check_needs(op, needs, bias.has_value());
  STD_TORCH_CHECK(reset_state.has_value() || !needs[kResetState], "lltm::", op,
                  ": needs_input_grad asks for the gradient of reset_state, which is None");
  const SequenceGradients<Api> d{
      {needs, input, sizes.cell, bias, {sizes.steps, sizes.cell.batch, sizes.cell.features}},
      {input, sizes.cell, args.states, [&](int) { return needs[kStates]; }},
      {input, sizes.cell, args.states, [&](int) { return needs[kResetState]; }}};
  sequence_gradients<Device, Tensor>(args, backward, sizes, values, d);
  return d.parameters.with(input, d.first[0], d.reset_state[0]);
}

}  // namespace LLTM_CELL
}  // namespace lltm
