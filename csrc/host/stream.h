// One step at a time on CPU tensors, for inference: the weights packed beforehand, every result
// written where the caller says, so that a step allocates nothing.
#pragma once

#include <algorithm>
#include <optional>

#include "../lltm_arguments.h"
#include "dispatch.h"
#include "parallel.h"
#include "stream_tiles.h"
#include "widened.h"

namespace lltm {
inline namespace LLTM_CELL {

// A multiple of every vector's width, so that the packed size is the same on every processor.
constexpr int64_t kPackedStates = 16;

constexpr int64_t packed_elements(int64_t state, int64_t columns) {
  return (state + kPackedStates - 1) / kPackedStates * kPackedStates * Cell::kGates * columns;
}

// One share of the weights, and zeros where this processor's vectors need less room than others'.
template <class T>
void pack_share(const cpu::Pack<T>& args) {
  const auto& kernels = cpu::kernels().of<T>();
  const int64_t panels = kernels.panels(args.state, cpu::kForwardVectors<Cell::kGates>);
  kernels.pack_forward(args, 0, panels);
  std::fill(args.packed + panels * cpu::kForwardVectors<Cell::kGates> * kernels.width *
                              Cell::kGates * args.columns,
            args.packed + packed_elements(args.state, args.columns), cpu::compute_t<T>(0));
}

// [3S, S + F] -> the state's share packed, then the input's; in the compute type
template <class Api, class Tensor = typename Api::Tensor>
Tensor pack_cpu(const Tensor& weights_) {
  const CellSizes sizes = check_packable("pack", weights_);
  const Tensor weights = Api::contiguous(weights_);
  const int64_t state = sizes.state, features = sizes.features, width = state + features;
  std::optional<Tensor> result;
  dispatch(weights.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using C = cpu::compute_t<T>;
    result = Api::template empty_of_type<C>(weights, {packed_elements(state, width)});
    C* packed = Api::template mutable_data<C>(*result);
    const T* from = Api::template data<T>(weights);
    if constexpr (kTiles<T>) {
      if (is_stream_tiled<T>(sizes)) {
        return pack_stream_tiles<Api>(sizes, from, packed, packed_elements(state, width));
      }
    }
    pack_share<T>({from, width, state, state, state, packed});
    pack_share<T>(
        {from + state, width, state, state, features, packed + packed_elements(state, state)});
  });
  return *result;
}

// The gates after the products of h and of x, by vectors.
template <class Api, class T>
void packed_stream_step(const CellSizes& sizes, const T* input, const cpu::compute_t<T>* packed,
                        const cpu::GatesForward<T>& gates) {
  const int64_t features = sizes.features, state = sizes.state;
  const auto& kernels = cpu::kernels().of<T>();
  const Widened<T> h(gates.old_state[0], sizes.batch * state);
  const Widened<T> x(input, sizes.batch * features);
  const cpu::StepForward<T> step{gates,
                                 {h.data(), packed, state},
                                 {x.data(), packed + packed_elements(state, state), features}};
  run<Api>(kernels.step_forward, step, kernels.panels(state, cpu::kForwardVectors<Cell::kGates>),
           2 * sizes.batch * Cell::kGates * sizes.width() * kernels.width, kGrainFlops);
}

template <class Api, class T, class Tensor>
void stream_step(const CellSizes& sizes, const Tensor& input, const Tensor& packed_,
                 const std::optional<Tensor>& bias, const Tensor& old_h, const Tensor& cell,
                 const Tensor& new_h, double alpha) {
  using C = cpu::compute_t<T>;
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  // First, because they may be lazy copies, which get memory of their own here.
  T* cell_data = Api::template mutable_data<T>(cell);
  T* new_h_data = Api::template mutable_data<T>(new_h);
  const T* input_data = Api::template data<T>(input);
  const T* old_h_data = Api::template data<T>(old_h);
  const T* bias_data = data_or_null<Api, T>(bias);
  const C* packed = Api::template data<C>(packed_);
  const int64_t plane = batch * state, size = sizeof(T);
  const Span cell_span{"cell", cell_data, plane * size};
  const Span input_span{"input", input_data, batch * features * size};
  const Span packed_span{"packed", packed, packed_.numel() * static_cast<int64_t>(sizeof(C))};
  const Span bias_span{"bias", bias_data, bias ? Cell::kPre * state * size : 0};
  const Span old_h_span{"old_h", old_h_data, plane * size};
  check_apart(cell_span, {input_span, packed_span, bias_span, old_h_span});
  check_apart({"new_h", new_h_data, plane * size},
              {input_span, packed_span, bias_span, old_h_span, cell_span});
  cpu::GatesForward<T> gates{batch, state, {alpha}};
  gates.bias = bias_data;
  gates.old_state[0] = old_h_data;
  gates.old_state[1] = cell_data;
  gates.new_state[0] = new_h_data;
  gates.new_state[1] = cell_data;
  if constexpr (kTiles<T>) {
    if (is_stream_tiled<T>(sizes)) {
      return tiled_stream_step<Api>(sizes, input_data, packed, gates);
    }
  }
  packed_stream_step<Api>(sizes, input_data, packed, gates);
}

template <class Api, class Tensor = typename Api::Tensor>
void stream_step_cpu(const Tensor& input_, const Tensor& packed, const std::optional<Tensor>& bias_,
                     const Tensor& old_h_, const Tensor& cell, const Tensor& new_h, double alpha) {
  const CellSizes sizes = check_stream<Api>(input_, bias_, old_h_, cell, new_h, alpha);
  const Tensor input = Api::contiguous(input_), old_h = Api::contiguous(old_h_);
  const auto bias = contiguous_or_none<Api>(bias_);
  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    check_packed<Api, cpu::compute_t<T>>(
        packed, input, packed_elements(sizes.state, sizes.state + sizes.features));
    stream_step<Api, T>(sizes, input, packed, bias, old_h, cell, new_h, alpha);
  });
}

}  // namespace LLTM_CELL
}  // namespace lltm
