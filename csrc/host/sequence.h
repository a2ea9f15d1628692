// All steps of the LLTM on the tensors of any device: check, allocate, and what the device makes of
// them (CpuDevice, CudaDevice).
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "dispatch.h"
#include "passes.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Tensor>
struct SequenceResult {
  Tensor output;
  Tensor h_n;
  Tensor c_n;
  // For backward; absent where there will be none.
  std::optional<Tensor> cells;
  std::optional<Tensor> gates;
};

template <class Device, class Tensor = TensorOf<Device>>
SequenceResult<Tensor> sequence_compute(const char* op, const Tensor& input_,
                                        const Tensor& weights_, const std::optional<Tensor>& bias_,
                                        const Tensor& h0_, const Tensor& c0_, double alpha,
                                        bool save) {
  using Api = typename Device::Api;
  const SequenceSizes sizes = check_sequence<Api>(op, input_, weights_, bias_, h0_, c0_, alpha);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const Device device(input_);
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               h0 = Api::contiguous(h0_), c0 = Api::contiguous(c0_);
  const auto bias = contiguous_or_none<Api>(bias_);
  SequenceResult<Tensor> result{Api::empty(input, {steps, batch, state}),
                                Api::empty(input, {batch, state}),
                                Api::empty(input, {batch, state}), std::nullopt, std::nullopt};
  if (save) {
    result.cells = Api::empty(input, {steps, batch, state});
    result.gates = Api::empty(input, {steps, batch, Cell::kSaved * state});
  }
  if (batch * state == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceForward<T> args{sizes, {alpha}};
    args.input = Api::template data<T>(input);
    args.weights = {Api::template data<T>(weights), sizes.cell};
    args.bias = data_or_null<Api, T>(bias);
    args.first[0] = Api::template data<T>(h0);
    args.first[1] = Api::template data<T>(c0);
    args.output = Api::template mutable_data<T>(result.output);
    args.last[0] = Api::template mutable_data<T>(result.h_n);
    args.last[1] = Api::template mutable_data<T>(result.c_n);
    args.states = mutable_data_or_null<Api, T>(result.cells);
    args.saved = mutable_data_or_null<Api, T>(result.gates);
    device.run(args, input);
  });
  return result;
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor> sequence_op(const Tensor& input, const Tensor& weights,
                                               const std::optional<Tensor>& bias, const Tensor& h0,
                                               const Tensor& c0, double alpha) {
  auto r = sequence_compute<Device>("sequence", input, weights, bias, h0, c0, alpha, false);
  return {r.output, r.h_n, r.c_n};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> sequence_forward_op(
    const Tensor& input, const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h0,
    const Tensor& c0, double alpha) {
  auto r = sequence_compute<Device>("sequence_forward", input, weights, bias, h0, c0, alpha, true);
  return {r.output, r.h_n, r.c_n, *r.cells, *r.gates};
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> sequence_backward_op(const std::optional<Tensor>& grad_output_,
                                       const std::optional<Tensor>& grad_h_n_,
                                       const std::optional<Tensor>& grad_c_n_, const Tensor& input_,
                                       const Tensor& weights_, const std::optional<Tensor>& bias,
                                       const Tensor& h0_, const Tensor& c0_, const Tensor& output_,
                                       const Tensor& cells_, const Tensor& gates_, double alpha,
                                       const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const SequenceSizes sizes =
      check_sequence_backward<Api>(grad_output_, grad_h_n_, grad_c_n_, input_, weights_, bias, h0_,
                                   c0_, output_, cells_, gates_, alpha);
  const int64_t batch = sizes.cell.batch, state = sizes.cell.state;
  check_needs("sequence_backward", needs, bias.has_value());
  const Device device(input_);
  const Tensor weights = Api::contiguous(weights_), h0 = Api::contiguous(h0_),
               c0 = Api::contiguous(c0_), output = Api::contiguous(output_),
               cells = Api::contiguous(cells_), gates = Api::contiguous(gates_);
  const auto grad_output = contiguous_or_none<Api>(grad_output_),
             grad_h_n = contiguous_or_none<Api>(grad_h_n_),
             grad_c_n = contiguous_or_none<Api>(grad_c_n_);
  const auto input = contiguous_if<Api>(needs[kWeights], input_);
  const GradientTensors<Api> d(needs, input_, sizes.cell, bias,
                               {sizes.steps, batch, sizes.cell.features});
  const auto d_h0 = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_c0 = empty_if<Api>(needs[kOldCell], input_, {batch, state});
  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceBackward<T> args{sizes, {alpha}};
    args.input = data_or_null<Api, T>(input);
    args.weights = Api::template data<T>(weights);
    args.first[0] = Api::template data<T>(h0);
    args.first[1] = Api::template data<T>(c0);
    args.output = Api::template data<T>(output);
    args.states = Api::template data<T>(cells);
    args.saved = Api::template data<T>(gates);
    args.grad_output = data_or_null<Api, T>(grad_output);
    args.grad_last[0] = data_or_null<Api, T>(grad_h_n);
    args.grad_last[1] = data_or_null<Api, T>(grad_c_n);
    args.d = d.template data<T>();
    args.d_first[0] = mutable_data_or_null<Api, T>(d_h0);
    args.d_first[1] = mutable_data_or_null<Api, T>(d_c0);
    device.run(args, input_);
  });
  return d.with(input_, d_h0, d_c0);
}

}  // namespace LLTM_CELL
}  // namespace lltm
