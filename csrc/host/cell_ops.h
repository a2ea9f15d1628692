// One step of the LLTM on the tensors of any device: check, allocate, and what the device makes of
// it (CpuDevice, CudaDevice).
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "dispatch.h"
#include "passes.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Tensor>
struct CellResult {
  Tensor new_h;
  Tensor new_cell;
  std::optional<Tensor> gates;  // for backward; absent where there will be none
};

template <class Device, class Tensor = TensorOf<Device>>
CellResult<Tensor> cell_compute(const char* op, const Tensor& input_, const Tensor& weights_,
                                const std::optional<Tensor>& bias_, const Tensor& old_h_,
                                const Tensor& old_cell_, double alpha, bool save) {
  using Api = typename Device::Api;
  const CellSizes sizes = check_cell<Api>(op, input_, weights_, bias_, old_h_, old_cell_, alpha);
  const Device device(input_);
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               old_h = Api::contiguous(old_h_), old_cell = Api::contiguous(old_cell_);
  const auto bias = contiguous_or_none<Api>(bias_);
  CellResult<Tensor> result{Api::empty(input, {sizes.batch, sizes.state}),
                            Api::empty(input, {sizes.batch, sizes.state}), std::nullopt};
  if (save) result.gates = Api::empty(input, {sizes.batch, Cell::kSaved * sizes.state});
  if (sizes.batch == 0 || sizes.state == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    CellForward<T> args{sizes, {alpha}};
    args.input = Api::template data<T>(input);
    args.weights = Api::template data<T>(weights);
    args.bias = data_or_null<Api, T>(bias);
    args.old_state[0] = Api::template data<T>(old_h);
    args.old_state[1] = Api::template data<T>(old_cell);
    args.new_state[0] = Api::template mutable_data<T>(result.new_h);
    args.new_state[1] = Api::template mutable_data<T>(result.new_cell);
    args.saved = mutable_data_or_null<Api, T>(result.gates);
    device.run(args, input);
  });
  return result;
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor> cell_op(const Tensor& input, const Tensor& weights,
                                   const std::optional<Tensor>& bias, const Tensor& old_h,
                                   const Tensor& old_cell, double alpha) {
  auto result = cell_compute<Device>("cell", input, weights, bias, old_h, old_cell, alpha, false);
  return {result.new_h, result.new_cell};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor> cell_forward_op(const Tensor& input, const Tensor& weights,
                                                   const std::optional<Tensor>& bias,
                                                   const Tensor& old_h, const Tensor& old_cell,
                                                   double alpha) {
  auto result =
      cell_compute<Device>("cell_forward", input, weights, bias, old_h, old_cell, alpha, true);
  return {result.new_h, result.new_cell, *result.gates};
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> cell_backward_op(const std::optional<Tensor>& grad_h_,
                                   const std::optional<Tensor>& grad_cell_, const Tensor& input_,
                                   const Tensor& weights_, const std::optional<Tensor>& bias,
                                   const Tensor& old_h_, const Tensor& old_cell,
                                   const Tensor& new_cell_, const Tensor& gates_, double alpha,
                                   const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const CellSizes sizes = check_cell_backward<Api>(grad_h_, grad_cell_, input_, weights_, bias,
                                                   old_h_, old_cell, new_cell_, gates_, alpha);
  check_needs("cell_backward", needs, bias.has_value());
  const Device device(input_);
  const Tensor weights = Api::contiguous(weights_), new_cell = Api::contiguous(new_cell_),
               gates = Api::contiguous(gates_);
  const auto grad_h = contiguous_or_none<Api>(grad_h_),
             grad_cell = contiguous_or_none<Api>(grad_cell_);
  const auto input = contiguous_if<Api>(needs[kWeights], input_),
             old_h = contiguous_if<Api>(needs[kWeights], old_h_);
  const GradientTensors<Api> d(needs, input_, sizes, bias, {sizes.batch, sizes.features});
  const auto d_old_h = empty_if<Api>(needs[kOldH], input_, {sizes.batch, sizes.state});
  const auto d_old_cell = empty_if<Api>(needs[kOldCell], input_, {sizes.batch, sizes.state});
  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    CellBackward<T> args{sizes, {alpha}};
    args.input = data_or_null<Api, T>(input);
    args.weights = Api::template data<T>(weights);
    args.old_h = data_or_null<Api, T>(old_h);
    args.new_state[1] = Api::template data<T>(new_cell);
    args.saved = Api::template data<T>(gates);
    args.grad_state[0] = data_or_null<Api, T>(grad_h);
    args.grad_state[1] = data_or_null<Api, T>(grad_cell);
    args.d = d.template data<T>();
    args.d_old_state[0] = mutable_data_or_null<Api, T>(d_old_h);
    args.d_old_state[1] = mutable_data_or_null<Api, T>(d_old_cell);
    device.run(args, input_);
  });
  return d.with(input_, d_old_h, d_old_cell);
}

}  // namespace LLTM_CELL
}  // namespace lltm
