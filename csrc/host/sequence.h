// All steps of a cell on the tensors of any device: allocate, and what the device makes of them
// (CpuDevice, CudaDevice). The arguments have been checked.
#pragma once

#include <optional>

#include "../contract.h"
#include "dispatch.h"
#include "passes.h"
#include "state_tensors.h"

namespace lltm {
inline namespace LLTM_CELL {

// What forward and backward read, contiguous.
template <class Api, class Tensor = typename Api::Tensor>
struct SequenceTensors {
  Tensor weights;
  std::optional<Tensor> bias, reset, input_weights;
  StateTensors<Api> states, reset_state;

  explicit SequenceTensors(const Arguments<Tensor>& args)
      : weights(Api::contiguous(args.weights)),
        bias(contiguous_or_none<Api>(args.bias)),
        reset(contiguous_or_none<Api>(args.reset)),
        input_weights(contiguous_or_none<Api>(args.input_weights)),
        states(args.states),
        reset_state(args.reset_state) {}

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
    reset_state.read_into(resets.state, plane);
    return resets;
  }
};

template <class Api, class Tensor = typename Api::Tensor>
struct SequenceResult {
  Tensor output;
  StateTensors<Api> last;
  // For backward, all states but h and what the cell saves; absent where there will be none.
  std::optional<Tensor> states, saved;
};

template <class Device, class Tensor = TensorOf<Device>>
SequenceResult<typename Device::Api> sequence_compute(const Arguments<Tensor>& arguments,
                                                      const SequenceSizes& sizes,
                                                      const Scalars& scalars, bool save) {
  using Api = typename Device::Api;
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const Device device(arguments.input);
  const Tensor input = Api::contiguous(arguments.input);
  const SequenceTensors<Api> of(arguments);
  SequenceResult<Api> result{Api::empty(input, {steps, batch, state}),
                             {input, sizes.cell, arguments.states, AllStates()},
                             std::nullopt,
                             std::nullopt};
  if (save) {
    result.states = arguments.states.is_stacked
                        ? Api::empty(input, {steps, Cell::kStates - 1, batch, state})
                        : Api::empty(input, {steps, batch, state});
    result.saved = Api::empty(input, {steps, batch, Cell::kSaved * state});
  }
  const int64_t plane = batch * state;
  if (plane == 0) return result;
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceForward<T> args{sizes, scalars};
    args.input = Api::template data<T>(input);
    args.weights = of.template sequence_weights<T>(sizes.cell);
    args.bias = data_or_null<Api, T>(of.bias);
    of.states.read_into(args.first, plane);
    args.resets = of.template resets<T>(plane);
    args.output = Api::template mutable_data<T>(result.output);
    result.last.write_into(args.last, plane);
    args.states = mutable_data_or_null<Api, T>(result.states);
    args.saved = mutable_data_or_null<Api, T>(result.saved);
    device.run(args, input);
  });
  return result;
}

// The gradients that are wanted of a sequence.
template <class Api, class Tensor = typename Api::Tensor>
struct SequenceGradients {
  GradientTensors<Api> parameters;
  StateTensors<Api> first, reset_state;
};

template <class Device, class Tensor = TensorOf<Device>>
void sequence_gradients(const Arguments<Tensor>& arguments,
                        const BackwardArguments<Tensor>& backward, const SequenceSizes& sizes,
                        const Scalars& scalars,
                        const SequenceGradients<typename Device::Api>& gradients) {
  using Api = typename Device::Api;
  const int64_t plane = sizes.cell.batch * sizes.cell.state;
  const Device device(arguments.input);
  const SequenceTensors<Api> of(arguments);
  const auto input = contiguous_if<Api>(gradients.parameters.weights.has_value(), arguments.input);
  const Tensor output = Api::contiguous(*backward.output),
               states = Api::contiguous(*backward.states.tensor),
               saved = Api::contiguous(*backward.saved.tensor);
  const auto grad_output = contiguous_or_none<Api>(backward.grad_output);
  const StateTensors<Api> grad_last(backward.grad_last);
  dispatch(arguments.input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    SequenceBackward<T> args{sizes, scalars};
    args.input = data_or_null<Api, T>(input);
    args.weights = Api::template data<T>(of.weights);
    of.states.read_into(args.first, plane);
    args.resets = of.template resets<T>(plane);
    args.output = Api::template data<T>(output);
    args.states = Api::template data<T>(states);
    args.saved = Api::template data<T>(saved);
    args.grad_output = data_or_null<Api, T>(grad_output);
    grad_last.read_into(args.grad_last, plane);
    args.d = gradients.parameters.template data<T>();
    gradients.first.write_into(args.d_first, plane);
    gradients.reset_state.write_into(args.d_reset_state, plane);
    device.run(args, arguments.input);
  });
}

}  // namespace LLTM_CELL
}  // namespace lltm
