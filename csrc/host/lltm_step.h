// The LLTM's ops of one step: check, allocate, and what the device makes of it (CpuDevice,
// CudaDevice).
#pragma once

#include <optional>
#include <tuple>

#include "../lltm_arguments.h"
#include "passes.h"
#include "state_tensors.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Api, class Tensor = typename Api::Tensor>
struct CellResult {
  StateTensors<Api> states;
  std::optional<Tensor> saved;  // for backward; absent where there will be none
};

template <class Device, class Tensor = TensorOf<Device>>
CellResult<typename Device::Api> cell_compute(const char* op, const Arguments<Tensor>& arguments,
                                              double alpha, bool save) {
  using Api = typename Device::Api;
  const CellSizes sizes = check_lltm<Api>(op, arguments, alpha).cell;
  const Device device(arguments.input);
  const Tensor input = Api::contiguous(arguments.input),
               weights = Api::contiguous(arguments.weights);
  const auto bias = contiguous_or_none<Api>(arguments.bias);
  const StateTensors<Api> states(arguments.states);
  CellResult<Api> result{{input, sizes, arguments.states, AllStates()}, std::nullopt};
  if (save) result.saved = Api::empty(input, {sizes.batch, Cell::kSaved * sizes.state});
  const int64_t plane = sizes.batch * sizes.state;
  if (plane == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    CellForward<T> args{sizes, {{alpha}}};
    args.input = Api::template data<T>(input);
    args.weights = Api::template data<T>(weights);
    args.bias = data_or_null<Api, T>(bias);
    states.read_into(args.old_state, plane);
    result.states.write_into(args.new_state, plane);
    args.saved = mutable_data_or_null<Api, T>(result.saved);
    device.run(args, input);
  });
  return result;
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor> cell_op(const Tensor& input, const Tensor& weights,
                                   const std::optional<Tensor>& bias, const Tensor& old_h,
                                   const Tensor& old_cell, double alpha) {
  const auto args = cell_arguments(input, weights, bias, old_h, old_cell);
  const auto r = cell_compute<Device>("cell", args, alpha, false);
  return {*r.states[0], *r.states[1]};
}

template <class Device, class Tensor = TensorOf<Device>>
std::tuple<Tensor, Tensor, Tensor> cell_forward_op(const Tensor& input, const Tensor& weights,
                                                   const std::optional<Tensor>& bias,
                                                   const Tensor& old_h, const Tensor& old_cell,
                                                   double alpha) {
  const auto args = cell_arguments(input, weights, bias, old_h, old_cell);
  const auto r = cell_compute<Device>("cell_forward", args, alpha, true);
  return {*r.states[0], *r.states[1], *r.saved};
}

template <class Device, class Tensor = TensorOf<Device>>
Gradients<Tensor> cell_backward_op(const std::optional<Tensor>& grad_h,
                                   const std::optional<Tensor>& grad_cell, const Tensor& input_,
                                   const Tensor& weights_, const std::optional<Tensor>& bias,
                                   const Tensor& old_h_, const Tensor& old_cell,
                                   const Tensor& new_cell_, const Tensor& gates_, double alpha,
                                   const typename Device::Api::Needs& needs) {
  using Api = typename Device::Api;
  const char* op = "cell_backward";
  const auto arguments = cell_arguments(input_, weights_, bias, old_h_, old_cell);
  const BackwardArguments<Tensor> backward{
      /*grad_output=*/nullptr,
      {false,
       {{"grad_new_h", pointer_or_null(grad_h)}, {"grad_new_cell", pointer_or_null(grad_cell)}}},
      /*output=*/nullptr,
      {"new_cell", &new_cell_},
      {"gates", &gates_}};
  const SequenceSizes checked = check_lltm<Api>(op, arguments, alpha);
  check_backward<Api>(op, arguments, backward, checked);
  check_needs(op, needs, bias.has_value());
  const CellSizes& sizes = checked.cell;
  const Device device(input_);
  const Tensor weights = Api::contiguous(weights_), new_cell = Api::contiguous(new_cell_),
               gates = Api::contiguous(gates_);
  const StateTensors<Api> grad_states(backward.grad_last);
  const auto input = contiguous_if<Api>(needs[kWeights], input_),
             old_h = contiguous_if<Api>(needs[kWeights], old_h_);
  const GradientTensors<Api> d(needs, input_, sizes, bias, {sizes.batch, sizes.features});
  const StateTensors<Api> d_states(input_, sizes, arguments.states,
                                   [&](int i) { return needs[kOldH + i]; });
  const int64_t plane = sizes.batch * sizes.state;
  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    CellBackward<T> args{sizes, {{alpha}}};
    args.input = data_or_null<Api, T>(input);
    args.weights = Api::template data<T>(weights);
    args.old_h = data_or_null<Api, T>(old_h);
    args.new_state[1] = Api::template data<T>(new_cell);  // h is not read
    args.saved = Api::template data<T>(gates);
    grad_states.read_into(args.grad_state, plane);
    args.d = d.template data<T>();
    d_states.write_into(args.d_old_state, plane);
    device.run(args, input_);
  });
  return d.with(input_, d_states[0], d_states[1]);
}

}  // namespace LLTM_CELL
}  // namespace lltm
