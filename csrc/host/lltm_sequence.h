// The LLTM's ops of a sequence.
#pragma once

#include <optional>
#include <tuple>

#include "../lltm_arguments.h"
#include "sequence.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Device, class Tensor = TensorOf<Device>>
SequenceResult<typename Device::Api> lltm_sequence(const char* op, const Arguments<Tensor>& args,
                                                   double alpha, bool save) {
  const SequenceSizes sizes = check_lltm<typename Device::Api>(op, args, alpha);
  return sequence_compute<Device, Tensor>(args, sizes, {{alpha}}, save);
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor> sequence_op(const Tensor& input, const Tensor& weights,
                                               const std::optional<Tensor>& bias, const Tensor& h0,
                                               const Tensor& c0, double alpha) {
  const auto args = sequence_arguments(input, weights, bias, h0, c0);
  const auto r = lltm_sequence<Device>("sequence", args, alpha, false);
  return {r.output, *r.last[0], *r.last[1]};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> sequence_forward_op(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h0,
    const Tensor& c0, double alpha) {
  const auto args = sequence_arguments(input, weights, bias, h0, c0);
  const auto r = lltm_sequence<Device>("sequence_forward", args, alpha, true);
  return {r.output, *r.last[0], *r.last[1], *r.states, *r.saved};
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> sequence_backward_op(const std::optional<Tensor>& grad_output,
                                       const std::optional<Tensor>& grad_h_n,
                                       const std::optional<Tensor>& grad_c_n, const Tensor& input,
                                       const Tensor& weights, const std::optional<Tensor>& bias,
                                       const Tensor& h0, const Tensor& c0, const Tensor& output,
                                       const Tensor& cells, const Tensor& gates, double alpha,
                                       const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const char* op = "sequence_backward";
  const auto args = sequence_arguments(input, weights, bias, h0, c0);
  const BackwardArguments<Tensor> backward{
      pointer_or_null(grad_output),
      {false, {{"grad_h_n", pointer_or_null(grad_h_n)}, {"grad_c_n", pointer_or_null(grad_c_n)}}},
      &output,
      {"cells", &cells},
      {"gates", &gates}};
  const SequenceSizes sizes = check_lltm<Api>(op, args, alpha);
  check_backward<Api>(op, args, backward, sizes);
  check_needs(op, needs, bias.has_value());
  const SequenceGradients<Api> d{
      {needs, input, sizes.cell, bias, {sizes.steps, sizes.cell.batch, sizes.cell.features}},
      {input, sizes.cell, args.states, [&](int i) { return needs[kOldH + i]; }},
      StateTensors<Api>(args.reset_state)};
  sequence_gradients<Device, Tensor>(args, backward, sizes, {{alpha}}, d);
  return d.parameters.with(input, d.first[0], d.first[1]);
}

}  // namespace LLTM_CELL
}  // namespace lltm
