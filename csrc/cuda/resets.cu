// Rows of a sequence that begin again at a step: one thread an element.
#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class T>
__global__ void __launch_bounds__(kThreads) reset_states_kernel(const ResetStates<T> args) {
  const int64_t at = thread_index();
  if (at >= args.rows * args.state) return;
  const bool restarts = args.reset[at / args.state];
#pragma unroll
  for (int i = 0; i < Cell::kStates; ++i) {
    T value = {};
    if (!restarts) {
      value = args.from[i][at];
    } else if (args.reset_state[i]) {
      value = args.reset_state[i][at];
    }
    args.to[i][at] = value;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) reset_gradients_kernel(const ResetGradients<T> args) {
  using V = compute_t<T>;
  const int64_t plane = args.rows * args.state, at = thread_index();
  if (at >= plane || !args.reset[at / args.state]) return;
#pragma unroll
  for (int i = 0; i < Cell::kStates; ++i) {
    V gradient = i == 0 ? widen(args.d_h[at]) : V(0);
    if (i >= kFirstPassed) gradient += args.carry[i * plane + at];
    if (args.sums) args.sums[i * plane + at] += gradient;
    args.carry[i * plane + at] = V(0);
  }
  args.d_h[at] = T{};
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_values_kernel(const AddValues<T> args) {
  const int64_t at = thread_index();
  if (at >= args.count) return;
  compute_t<T> sum = 0;
  if (args.stored) sum += widen(args.stored[at]);
  if (args.wide) sum += args.wide[at];
  narrow(sum, args.to[at]);
}

}  // namespace

template <class T>
void reset_states(const ResetStates<T>& args, Stream stream) {
  const int64_t items = args.rows * args.state;
  if (items == 0) return;
  launch("reset the states", reset_states_kernel<T>, cover(items, kThreads), stream, args);
}

template <class T>
void reset_gradients(const ResetGradients<T>& args, Stream stream) {
  const int64_t items = args.rows * args.state;
  if (items == 0) return;
  launch("reset the states' gradients", reset_gradients_kernel<T>, cover(items, kThreads), stream,
         args);
}

template <class T>
void add_values(const AddValues<T>& args, Stream stream) {
  if (args.count == 0) return;
  launch("add the gradients", add_values_kernel<T>, cover(args.count, kThreads), stream, args);
}

#define LLTM_INSTANTIATE(T)                                        \
  template void reset_states(const ResetStates<T>&, Stream);       \
  template void reset_gradients(const ResetGradients<T>&, Stream); \
  template void add_values(const AddValues<T>&, Stream);
LLTM_INSTANTIATE(float)
LLTM_INSTANTIATE(double)
LLTM_INSTANTIATE(BFloat16)
LLTM_INSTANTIATE(Half)
#undef LLTM_INSTANTIATE

}  // namespace lltm::cuda
