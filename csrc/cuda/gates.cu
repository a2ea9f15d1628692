// The elementwise part of a step, one thread a pack of neighbouring state elements.
#include "../cell.h"
#include "device_math.h"
#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kThreads = 128;

// Of the LLTM: a cell that reads nothing else of the states before a step.
static_assert(Cell::kStates == 2 && Cell::kSaved == Cell::kGates && !Cell::kSplit,
              "the CUDA kernels compute a cell with a hidden state and a cell state");

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

template <class Gates, class T, int N>
__global__ void __launch_bounds__(kThreads) forward_kernel(const GatesForward<T> args) {
  using V = compute_t<T>;
  constexpr int kGates = Gates::kGates;
  const Position at = position<N>(args.state);
  if (at.row >= args.rows) return;
  const int64_t in_row = at.row * args.state + at.column;
  const int64_t first_gate = at.row * kGates * args.state + at.column;

  Pack<V, N> z[kGates];
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t offset = first_gate + gate * args.state;
    z[gate] = load<N>(args.z_input + offset);
    if (args.z_state) add(z[gate], args.z_state + offset);
    if (args.bias) add(z[gate], args.bias + gate * args.state + at.column);
  }
  const Pack<V, N> old_cell = load<N>(args.old_cell + in_row);

  Pack<V, N> new_h, new_cell;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    V of_element[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) of_element[gate] = z[gate].values[i];
    const V old_state[] = {V(0), old_cell.values[i]}, scalars[] = {static_cast<V>(args.alpha)};
    const auto out = Gates::forward(of_element, old_state, scalars);
    new_h.values[i] = out.state[0];
    new_cell.values[i] = out.state[1];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) z[gate].values[i] = out.saved[gate];
  }
  store(args.new_h + in_row, new_h);
  store(args.new_cell + in_row, new_cell);
  if (!args.gates) return;
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    store(args.gates + first_gate + gate * args.state, z[gate]);
  }
}

template <class Gates, class T, int N>
__global__ void __launch_bounds__(kThreads) backward_kernel(const GatesBackward<T> args) {
  using V = compute_t<T>;
  constexpr int kGates = Gates::kGates;
  const Position at = position<N>(args.state);
  if (at.row >= args.rows) return;
  const int64_t in_row = at.row * args.state + at.column;
  const int64_t first_gate = at.row * kGates * args.state + at.column;

  Pack<V, N> saved[kGates];
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    saved[gate] = load<N>(args.gates + first_gate + gate * args.state);
  }
  const Pack<V, N> new_cell = load<N>(args.new_cell + in_row);
  Pack<V, N> grad_h = {}, grad_cell = {};
  if (args.grad_h) add(grad_h, args.grad_h + in_row);
  if (args.grad_h_extra) add(grad_h, args.grad_h_extra + in_row);
  if (args.grad_cell) add(grad_cell, args.grad_cell + in_row);
  if (args.carry_in) add(grad_cell, args.carry_in + in_row);

  Pack<V, N> d_old_cell;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    V of_element[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) of_element[gate] = saved[gate].values[i];
    const V old_state[] = {V(0), V(0)}, new_state[] = {V(0), new_cell.values[i]};
    const V grad[] = {grad_h.values[i], grad_cell.values[i]};
    const V scalars[] = {static_cast<V>(args.alpha)};
    const auto out = Gates::backward(of_element, old_state, new_state, grad, scalars);
    d_old_cell.values[i] = out.d_state[1];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) saved[gate].values[i] = out.d_z[gate];
  }
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
    store(args.d_z + first_gate + gate * args.state, saved[gate]);
  }
  if (args.carry_out) store(args.carry_out + in_row, d_old_cell);
  if (args.d_old_cell) store(args.d_old_cell + in_row, d_old_cell);
}

}  // namespace

template <class T>
void gates_forward(const GatesForward<T>& args, Stream stream) {
  using Gates = described::LLTM_CELL<DeviceMath>;
  constexpr int kWide = kVector<T>;
  const bool wide =
      args.state % kWide == 0 && are_aligned(args.z_input, args.z_state, args.bias, args.old_cell,
                                             args.new_h, args.new_cell, args.gates);
  const int64_t items = args.rows * args.state / (wide ? kWide : 1);
  if (items == 0) return;
  launch("compute the gates", wide ? forward_kernel<Gates, T, kWide> : forward_kernel<Gates, T, 1>,
         cover(items, kThreads), stream, args);
}

template <class T>
void gates_backward(const GatesBackward<T>& args, Stream stream) {
  using Gates = described::LLTM_CELL<DeviceMath>;
  constexpr int kWide = kVector<T>;
  const bool wide =
      args.state % kWide == 0 &&
      are_aligned(args.gates, args.new_cell, args.grad_h, args.grad_h_extra, args.grad_cell,
                  args.carry_in, args.carry_out, args.d_old_cell, args.d_z);
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
