// The blocks of block-diagonal recurrent weights, spread into a full matrix and gathered from one.
#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kThreads = 128;

// One thread an element of the full matrix.
template <class T>
__global__ void __launch_bounds__(kThreads) expand_heads_kernel(const ExpandHeads<T> args) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = item / args.state, column = item - row * args.state;
  if (row >= args.rows) return;
  const int64_t in_head = column - row % args.state / args.head * args.head;
  T value = {};
  if (in_head >= 0 && in_head < args.head) value = args.weights[row * args.stride + in_head];
  args.full[item] = value;
}

// One thread an element of a block.
template <class T>
__global__ void __launch_bounds__(kThreads) gather_heads_kernel(const GatherHeads<T> args) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = item / args.head, in_head = item - row * args.head;
  if (row >= args.rows) return;
  const int64_t column = row % args.state / args.head * args.head + in_head;
  args.weights[row * args.stride + in_head] = args.full[row * args.state + column];
}

}  // namespace

template <class T>
void expand_heads(const ExpandHeads<T>& args, Stream stream) {
  const int64_t items = args.rows * args.state;
  if (items == 0) return;
  launch("expand the heads", expand_heads_kernel<T>, cover(items, kThreads), stream, args);
}

template <class T>
void gather_heads(const GatherHeads<T>& args, Stream stream) {
  const int64_t items = args.rows * args.head;
  if (items == 0) return;
  launch("gather the heads", gather_heads_kernel<T>, cover(items, kThreads), stream, args);
}

#define LLTM_INSTANTIATE(T)                                  \
  template void expand_heads(const ExpandHeads<T>&, Stream); \
  template void gather_heads(const GatherHeads<T>&, Stream);
LLTM_INSTANTIATE(float)
LLTM_INSTANTIATE(double)
LLTM_INSTANTIATE(BFloat16)
LLTM_INSTANTIATE(Half)
#undef LLTM_INSTANTIATE

}  // namespace lltm::cuda
