// The elementwise part of a step, one thread a pack of neighbouring state elements.
#include "../cell.h"
#include "device_math.h"
#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kThreads = 128;

struct Position {
  int64_t row;
  int64_t column;
};

template <int N>
__device__ __forceinline__ Position position(int64_t state) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t packs = state / N;
  // A 64-bit division takes several times as long.
  if (item <= UINT32_MAX && packs <= UINT32_MAX) {
    const uint32_t row = static_cast<uint32_t>(item) / static_cast<uint32_t>(packs);
    return {row, (item - row * packs) * N};
  }
  const int64_t row = item / packs;
  return {row, (item - row * packs) * N};
}

// The pre-activations of a pack of elements, the input's share first where they come apart.
template <class Gates, class T, int N>
__device__ __forceinline__ void load_pre_activations(const GatesForward<T>& args,
                                                     const Position& at,
                                                     Pack<compute_t<T>, N> (&z)[Gates::kPre]) {
  constexpr int kGates = Gates::kGates, kRecurrent = Gates::kPre - kGates;
  const int64_t first = at.row * kGates * args.state + at.column;
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t offset = first + gate * args.state;
    z[gate] = load<N>(args.z_input + offset);
    if (Gates::kSplit) z[kRecurrent + gate] = {};
    if (args.z_recurrent) add(z[kRecurrent + gate], args.z_recurrent + offset);
  }
#pragma unroll
  for (int i = 0; i < Gates::kPre; ++i) {
    if (args.bias) add(z[i], args.bias + i * args.state + at.column);
  }
}

template <class Gates, class T, int N>
__global__ void __launch_bounds__(kThreads) forward_kernel(const GatesForward<T> args) {
  using V = compute_t<T>;
  constexpr int kStates = Gates::kStates, kSaved = Gates::kSaved;
  const Position at = position<N>(args.state);
  if (at.row >= args.rows) return;
  const int64_t in_row = at.row * args.state + at.column;
  Pack<V, N> z[Gates::kPre], state[kStates], saved[kRoom<kSaved>];
  load_pre_activations<Gates>(args, at, z);
#pragma unroll
  for (int i = 0; i < kStates; ++i) state[i] = load<N>(args.old_state[i] + in_row);

  const StepScalars<V> scalars(args.scalars);
#pragma unroll
  for (int e = 0; e < N; ++e) {
    V z_of_element[Gates::kPre], state_of_element[kStates];
#pragma unroll
    for (int i = 0; i < Gates::kPre; ++i) z_of_element[i] = z[i].values[e];
#pragma unroll
    for (int i = 0; i < kStates; ++i) state_of_element[i] = state[i].values[e];
    const auto out = Gates::forward(z_of_element, state_of_element, scalars.values);
#pragma unroll
    for (int i = 0; i < kStates; ++i) state[i].values[e] = out.state[i];
#pragma unroll
    for (int i = 0; i < kSaved; ++i) saved[i].values[e] = out.saved[i];
  }
#pragma unroll
  for (int i = 0; i < kStates; ++i) store(args.new_state[i] + in_row, state[i]);
  if (!args.saved) return;
#pragma unroll
  for (int i = 0; i < kSaved; ++i) {
    store(args.saved + (at.row * kSaved + i) * args.state + at.column, saved[i]);
  }
}

template <int N, class T>
__device__ __forceinline__ Pack<compute_t<T>, N> load_or_zero(const T* from, int64_t at) {
  return from ? load<N>(from + at) : Pack<compute_t<T>, N>{};
}

// What backward reads, for a pack of elements.
template <class Gates, class T, int N>
struct BackwardOperands {
  using V = compute_t<T>;
  Pack<V, N> saved[kRoom<Gates::kSaved>];
  Pack<V, N> old_state[Gates::kStates], new_state[Gates::kStates], grad[Gates::kStates];

  __device__ __forceinline__ BackwardOperands(const GatesBackward<T>& args, const Position& at,
                                              int64_t in_row) {
#pragma unroll
    for (int i = 0; i < Gates::kSaved; ++i) {
      saved[i] = load<N>(args.saved + (at.row * Gates::kSaved + i) * args.state + at.column);
    }
#pragma unroll
    for (int i = 0; i < Gates::kStates; ++i) {
      old_state[i] = load_or_zero<N>(args.old_state[i], in_row);
      new_state[i] = load_or_zero<N>(args.new_state[i], in_row);
      grad[i] = load_or_zero<N>(args.grad_state[i], in_row);
      if (i == 0 && args.grad_h_extra) add(grad[i], args.grad_h_extra + in_row);
      if (i >= kFirstPassed && args.carry_in[i]) add(grad[i], args.carry_in[i] + in_row);
    }
  }
};

template <class Gates, class T, int N>
__global__ void __launch_bounds__(kThreads) backward_kernel(const GatesBackward<T> args) {
  using V = compute_t<T>;
  constexpr int kStates = Gates::kStates, kGates = Gates::kGates, kSaved = Gates::kSaved;
  const Position at = position<N>(args.state);
  if (at.row >= args.rows) return;
  const int64_t in_row = at.row * args.state + at.column;
  const BackwardOperands<Gates, T, N> of(args, at, in_row);

  Pack<V, N> d_z[Gates::kPre], d_state[kStates];
  const StepScalars<V> scalars(args.scalars);
#pragma unroll
  for (int e = 0; e < N; ++e) {
    V saved[kRoom<kSaved>], old_state[kStates], new_state[kStates], grad[kStates];
#pragma unroll
    for (int i = 0; i < kSaved; ++i) saved[i] = of.saved[i].values[e];
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      old_state[i] = of.old_state[i].values[e];
      new_state[i] = of.new_state[i].values[e];
      grad[i] = of.grad[i].values[e];
    }
    const auto out = Gates::backward(saved, old_state, new_state, grad, scalars.values);
#pragma unroll
    for (int i = 0; i < Gates::kPre; ++i) d_z[i].values[e] = out.d_z[i];
#pragma unroll
    for (int i = 0; i < kStates; ++i) d_state[i].values[e] = out.d_state[i];
  }
#pragma unroll
  for (int i = 0; i < Gates::kPre; ++i) {
    store(args.d_z[i / kGates] + (at.row * kGates + i % kGates) * args.state + at.column, d_z[i]);
  }
#pragma unroll
  for (int i = kFirstPassed; i < kStates; ++i) {
    if (args.carry_out[i]) store(args.carry_out[i] + in_row, d_state[i]);
    if (i > 0 && args.d_old_state[i]) store(args.d_old_state[i] + in_row, d_state[i]);
  }
}

}  // namespace

template <class T>
void gates_forward(const GatesForward<T>& args, Stream stream) {
  using Gates = described::LLTM_CELL<DeviceMath>;
  constexpr int kWide = kVector<T>;
  const bool wide = args.state % kWide == 0 &&
                    are_aligned(args.z_input, args.z_recurrent, args.bias, args.saved) &&
                    all_aligned(args.old_state) && all_aligned(args.new_state);
  const int64_t items = args.rows * args.state / (wide ? kWide : 1);
  if (items == 0) return;
  launch("compute the gates", wide ? forward_kernel<Gates, T, kWide> : forward_kernel<Gates, T, 1>,
         cover(items, kThreads), stream, args);
}

template <class T>
void gates_backward(const GatesBackward<T>& args, Stream stream) {
  using Gates = described::LLTM_CELL<DeviceMath>;
  constexpr int kWide = kVector<T>;
  const bool wide = args.state % kWide == 0 && are_aligned(args.saved, args.grad_h_extra) &&
                    all_aligned(args.old_state) && all_aligned(args.new_state) &&
                    all_aligned(args.grad_state) && all_aligned(args.carry_in) &&
                    all_aligned(args.carry_out) && all_aligned(args.d_old_state) &&
                    all_aligned(args.d_z);
  const int64_t items = args.rows * args.state / (wide ? kWide : 1);
  if (items == 0) return;
  launch("compute the gates' gradients",
         wide ? backward_kernel<Gates, T, kWide> : backward_kernel<Gates, T, 1>,
         cover(items, kThreads), stream, args);
}

template void gates_forward(const GatesForward<float>&, Stream);
template void gates_forward(const GatesForward<double>&, Stream);
template void gates_forward(const GatesForward<BFloat16>&, Stream);
template void gates_forward(const GatesForward<Half>&, Stream);
template void gates_backward(const GatesBackward<float>&, Stream);
template void gates_backward(const GatesBackward<double>&, Stream);
template void gates_backward(const GatesBackward<BFloat16>&, Stream);
template void gates_backward(const GatesBackward<Half>&, Stream);

}  // namespace lltm::cuda
