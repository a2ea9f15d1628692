// The whole time loop in one launch, for states whose weights fit the registers of the GPU.
//
// A block owns kUnits state elements of every gate and keeps their rows (forward) or columns
// (backward) of the state's weights in registers for the whole sequence. The blocks of a group
// together own all of the state and share some rows of the batch; a step needs the whole hidden
// state of those rows, so the group's blocks wait for each other once a step. Groups know nothing
// of one another. All blocks must be on the GPU at once: the launch is cooperative.
//
// Forward and backward are one shape of problem: per row and gate, kUnits dot products of length S.
//   forward   z[gate, unit]  = sum over k of h[k] W[gate S + unit, k]
//   backward  d_h[unit]      = sum over gate, k of d_z[gate, k] W[gate S + k, unit]
// A warp takes one gate and kWarpUnits units, its lanes split k.
#include <algorithm>
#include <atomic>

#include "../cell.h"
#include "device_math.h"
#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kUnits = 8;      // state elements of a block
constexpr int kWarpUnits = 4;  // and of a warp
constexpr int kRows = 4;       // rows of the batch that are worked on at a time: a tile
constexpr int kSums = kWarpUnits * kRows;
// Beyond this many rows of a group a step's arithmetic outweighs the launches it saves, and cuBLAS
// has the faster arithmetic: on an H200 steps of 64 rows took 1.7 times as long as launched one by
// one in bfloat16, 2.3 times in float32.
constexpr int64_t kMaxGroupRows = 32;

template <class Gates>
constexpr int kThreads = Gates::kGates * (kUnits / kWarpUnits) * kWarp;

// Values of V in one shared memory access.
template <class V>
constexpr int kAccess = kVectorBytes / static_cast<int>(sizeof(V));

// Where element k of a staged vector of `width` elements lies in shared memory, and back. A pack of
// 16-bit values widens to two accesses; its halves lie half a vector apart, because threads that
// write side by side must not skip banks.
// Unsigned, so that the compiler sees shifts, and constants where the lane does not matter.
template <class T>
__device__ __forceinline__ unsigned position_of(unsigned k, [[maybe_unused]] unsigned width) {
  constexpr unsigned kPack = kVector<T>, kHalf = kAccess<compute_t<T>>;
  if constexpr (kPack == kHalf) return k;
  return k / kPack * kHalf + k % kHalf + k / kHalf % 2 * (width / 2);
}
template <class T>
__device__ __forceinline__ unsigned element_at(unsigned position, [[maybe_unused]] unsigned width) {
  constexpr unsigned kPack = kVector<T>, kHalf = kAccess<compute_t<T>>;
  if constexpr (kPack == kHalf) return position;
  const unsigned half = position / (width / 2), within = position % (width / 2);
  return within / kHalf * kPack + half * kHalf + within % kHalf;
}

// The i-th position that a lane takes; neighbouring lanes read neighbouring banks.
template <class V>
__device__ __forceinline__ unsigned position_of_lane(unsigned i, unsigned lane) {
  return (i / kAccess<V> * kWarp + lane) * kAccess<V> + i % kAccess<V>;
}

// Past the first-level cache, which may hold what another block has since replaced.
__device__ __forceinline__ void load_fresh(const float* from, float& to) { to = __ldcg(from); }
__device__ __forceinline__ void load_fresh(const double* from, double& to) { to = __ldcg(from); }
__device__ __forceinline__ void load_fresh(const BFloat16* from, BFloat16& to) {
  to.bits = __ldcg(&from->bits);
}
__device__ __forceinline__ void load_fresh(const Half* from, Half& to) {
  to.bits = __ldcg(&from->bits);
}
template <class T>
__device__ __forceinline__ void load_fresh(const Pack<T, kVector<T>>* from,
                                           Pack<T, kVector<T>>& to) {
  *reinterpret_cast<uint4*>(&to) = __ldcg(reinterpret_cast<const uint4*>(from));
}

// One number for each block of a group that has finished a step.
__device__ __forceinline__ void arrive(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
  }
}
__device__ __forceinline__ void wait(unsigned* arrived, unsigned target) {
  if (threadIdx.x == 0) {
    while (*static_cast<volatile unsigned*>(arrived) < target) __nanosleep(20);
    __threadfence();
  }
  __syncthreads();
}

// Where a thread stands.
template <class Gates, class V, int K>
struct Place {
  static constexpr int kWidth = K * kWarp;  // S, rounded up

  int state;           // at most kWidth; 32 bits, for registers are short
  int first_unit;      // of the block
  int64_t begin, end;  // rows of the group
  unsigned* arrived;   // of the group
  unsigned blocks;     // of the group
  int gate;            // of the warp
  int warp_unit;       // first of the warp, within the block
  int lane;
  // The element that a thread of the first warp finishes after the dot products.
  int row;
  int unit;
  V* operand;  // shared, [kRows, operands, kWidth]
  V* sums;     // shared, [kGates, kRows, kUnits]

  __device__ Place(const PersistentPlan& plan, int64_t batch, int64_t state, unsigned* arrivals,
                   int operands)
      : state(static_cast<int>(state)), blocks(static_cast<unsigned>(plan.group_blocks)) {
    const int64_t group = blockIdx.x / plan.group_blocks;
    first_unit = static_cast<int>(blockIdx.x - group * plan.group_blocks) * kUnits;
    begin = group * plan.group_rows;
    end = begin + plan.group_rows < batch ? begin + plan.group_rows : batch;
    arrived = arrivals + group;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    gate = warp / (kUnits / kWarpUnits);
    warp_unit = warp % (kUnits / kWarpUnits) * kWarpUnits;
    lane = static_cast<int>(threadIdx.x) % kWarp;
    row = static_cast<int>(threadIdx.x) / kUnits;
    unit = static_cast<int>(threadIdx.x) % kUnits;
    operand = shared_memory<V>();
    sums = operand + kRows * operands * kWidth;
  }

  __device__ bool finishes(int64_t tile) const {
    return row < kRows && tile + row < end && first_unit + unit < state;
  }
  __device__ int64_t element(int64_t tile) const {
    return (tile + row) * state + first_unit + unit;
  }
  // Of piece `piece` of the `pieces` that a row has for each element.
  __device__ int64_t element_of(int64_t tile, int piece, int pieces) const {
    return ((tile + row) * pieces + piece) * state + first_unit + unit;
  }
  __device__ V sum(int of_gate) const { return sums[(of_gate * kRows + row) * kUnits + unit]; }
};

// operand[r, o, position of k] = from[tile + r, o, k], zero beyond the group's rows and the state.
template <int N, class T, class P>
__device__ __forceinline__ void stage_packs(const P& place, const T* from, int operands,
                                            int64_t tile) {
  constexpr int kPacks = P::kWidth / N;
  for (int at = threadIdx.x; at < kRows * operands * kPacks; at += blockDim.x) {
    const int line = at / kPacks, k = (at - line * kPacks) * N;
    const int64_t row = tile + line / operands;
    Pack<T, N> values = {};
    if (row < place.end && k < place.state) {
      const T* source = from + (tile * operands + line) * place.state + k;
      if constexpr (N == 1) {
        load_fresh(source, values.values[0]);
      } else {
        load_fresh(reinterpret_cast<const Pack<T, N>*>(source), values);
      }
    }
    constexpr int kAtOnce = N < kAccess<compute_t<T>> ? N : kAccess<compute_t<T>>;
#pragma unroll
    for (int first = 0; first < N; first += kAtOnce) {
      Pack<compute_t<T>, kAtOnce> wide;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) wide.values[i] = widen(values.values[first + i]);
      *reinterpret_cast<Pack<compute_t<T>, kAtOnce>*>(place.operand + line * P::kWidth +
                                                      position_of<T>(k + first, P::kWidth)) = wide;
    }
  }
}

template <class T, class P>
__device__ __forceinline__ void stage(const P& place, const T* from, int operands, int64_t tile) {
  if (place.state % kVector<T> == 0 && reinterpret_cast<uintptr_t>(from) % kVectorBytes == 0) {
    stage_packs<kVector<T>>(place, from, operands, tile);
  } else {
    stage_packs<1>(place, from, operands, tile);
  }
  __syncthreads();
}

// Adds each of the kSums values over the lanes of the warp. Every exchange halves the values a lane
// still adds; in the end lanes 2 i and 2 i + 1 both hold the sum of value i.
template <class V>
__device__ __forceinline__ V sum_over_lanes(V (&values)[kSums], int lane) {
  static_assert(kSums == 16, "four exchanges of halves leave one value");
#pragma unroll
  for (int half = kSums / 2, bit = kWarp / 2; half > 0; half /= 2, bit /= 2) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
      if (i < half) {
        const V given = upper ? values[i] : values[i + half];
        const V kept = upper ? values[i + half] : values[i];
        values[i] = kept + __shfl_xor_sync(0xffffffffu, given, bit);
      }
    }
  }
  return values[0] + __shfl_xor_sync(0xffffffffu, values[0], 1);
}

// sums = the block's dot products of the staged rows; `offset` is the warp's gate's operand.
template <class V, int K, class P>
__device__ __forceinline__ void multiply(const P& place, const V (&weights)[kWarpUnits][K],
                                         int operands, int offset) {
  V values[kSums] = {};
#pragma unroll
  for (int i = 0; i < K; i += kAccess<V>) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const auto x = *reinterpret_cast<const Pack<V, kAccess<V>>*>(
          place.operand + (row * operands + offset) * P::kWidth +
          position_of_lane<V>(i, place.lane));
#pragma unroll
      for (int unit = 0; unit < kWarpUnits; ++unit) {
#pragma unroll
        for (int e = 0; e < kAccess<V>; ++e) {
          values[unit * kRows + row] += weights[unit][i + e] * x.values[e];
        }
      }
    }
  }
  const V sum = sum_over_lanes(values, place.lane);
  if (place.lane % 2 == 0) {
    const int value = place.lane / 2, unit = value / kRows, row = value % kRows;
    place.sums[(place.gate * kRows + row) * kUnits + place.warp_unit + unit] = sum;
  }
  __syncthreads();
}

// The units' rows (forward) or columns (backward) of the state's weights that a lane keeps.
template <class T, int K, bool Transposed, class P>
__device__ __forceinline__ void load_weights(const P& place, const T* weights, int64_t stride,
                                             compute_t<T> (&to)[kWarpUnits][K]) {
  using V = compute_t<T>;
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const int k = static_cast<int>(element_at<T>(position_of_lane<V>(i, lane), P::kWidth));
#pragma unroll
    for (int unit = 0; unit < kWarpUnits; ++unit) {
      const int64_t of_unit = place.first_unit + place.warp_unit + unit;
      const int64_t row = Transposed ? k : of_unit, column = Transposed ? of_unit : k;
      const bool inside = of_unit < place.state && k < place.state;
      to[unit][i] =
          inside ? widen(weights[(place.gate * int64_t{place.state} + row) * stride + column])
                 : V(0);
    }
  }
}

// State i after step t, [B, S]. Forward without `states` has all but h in `last`.
template <class T>
__device__ __forceinline__ T* after(const PersistentForward<T>& args, int i, int64_t t,
                                    int64_t plane) {
  if (i == 0) return args.output + t * plane;
  return args.states ? args.states + (t * (Cell::kStates - 1) + i - 1) * plane : args.last[i];
}
template <class T>
__device__ __forceinline__ const T* after(const PersistentBackward<T>& args, int i, int64_t t,
                                          int64_t plane) {
  if (i == 0) return args.output + t * plane;
  return args.states + (t * (Cell::kStates - 1) + i - 1) * plane;
}

// State i before step t.
template <class Args>
__device__ __forceinline__ auto before(const Args& args, int i, int64_t t, int64_t plane)
    -> decltype(+args.first[i]) {
  return t ? after(args, i, t - 1, plane) : args.first[i];
}

// What forward reads of an element at step t, but for the recurrent share.
template <class Gates, class T>
struct ForwardOperands {
  using V = compute_t<T>;
  V z[Gates::kPre] = {}, state[Gates::kStates] = {};

  template <class P>
  __device__ __forceinline__ void load(const PersistentForward<T>& args, const P& place,
                                       int64_t tile, int64_t t) {
    constexpr int kGates = Gates::kGates;
    const int64_t plane = args.batch * args.state;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      z[gate] = widen(args.projected[t * plane * kGates + place.element_of(tile, gate, kGates)]);
    }
#pragma unroll
    for (int i = 0; i < Gates::kPre; ++i) {
      if (args.bias) z[i] += widen(args.bias[i * args.state + place.first_unit + place.unit]);
    }
#pragma unroll
    for (int i = 0; i < Gates::kStates; ++i) {
      state[i] = widen(before(args, i, t, plane)[place.element(tile)]);
    }
  }
};

// An element's results at step t.
template <class Gates, class T, class P, class Out>
__device__ __forceinline__ void store_states(const PersistentForward<T>& args, const P& place,
                                             int64_t tile, int64_t t, const Out& out) {
  const int64_t plane = args.batch * args.state, at = place.element(tile);
#pragma unroll
  for (int i = 0; i < Gates::kStates; ++i) {
    narrow(out.state[i], after(args, i, t, plane)[at]);
    if (t == args.steps - 1) narrow(out.state[i], args.last[i][at]);
  }
#pragma unroll
  for (int i = 0; i < Gates::kSaved; ++i) {
    if (!args.saved) continue;
    const int64_t to = place.element_of(tile, i, Gates::kSaved);
    narrow(out.saved[i], args.saved[t * plane * Gates::kSaved + to]);
  }
}

template <class Gates, class T, int K>
__global__ void __launch_bounds__(kThreads<Gates>, 1)
    forward_kernel(const PersistentForward<T> args, const PersistentPlan plan) {
  using V = compute_t<T>;
  constexpr int kGates = Gates::kGates, kRecurrent = Gates::kPre - kGates;
  const int64_t plane = args.batch * args.state;
  const Place<Gates, V, K> place(plan, args.batch, args.state, args.arrivals, 1);
  V weights[kWarpUnits][K];
  load_weights<T, K, false>(place, args.weights, args.weights_stride, weights);
  const StepScalars<V> scalars(args.scalars);

  for (int64_t t = 0; t < args.steps; ++t) {
    for (int64_t tile = place.begin; tile < place.end; tile += kRows) {
      const bool finishes = place.finishes(tile);
      // What does not depend on the others is under way while they are waited for.
      ForwardOperands<Gates, T> of;
      if (finishes) of.load(args, place, tile, t);
      if (t && tile == place.begin) wait(place.arrived, static_cast<unsigned>(t) * place.blocks);
      stage(place, before(args, 0, t, plane), 1, tile);
      multiply(place, weights, 1, 0);
      if (!finishes) continue;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) of.z[kRecurrent + gate] += place.sum(gate);
      const auto out = Gates::forward(of.z, of.state, scalars.values);
      store_states<Gates>(args, place, tile, t, out);
    }
    arrive(place.arrived);
  }
}

// What backward reads of an element at step t, but for the gradient from the following step.
template <class Gates, class T>
struct BackwardOperands {
  using V = compute_t<T>;
  V saved[kRoom<Gates::kSaved>] = {};
  V old_state[Gates::kStates] = {}, new_state[Gates::kStates] = {}, grad[Gates::kStates] = {};

  template <class P>
  __device__ __forceinline__ void load(const PersistentBackward<T>& args, const P& place,
                                       int64_t tile, int64_t t) {
    const int64_t plane = args.batch * args.state, at = place.element(tile);
#pragma unroll
    for (int i = 0; i < Gates::kSaved; ++i) {
      const int64_t from = place.element_of(tile, i, Gates::kSaved);
      saved[i] = widen(args.saved[t * plane * Gates::kSaved + from]);
    }
#pragma unroll
    for (int i = 0; i < Gates::kStates; ++i) {
      old_state[i] = widen(before(args, i, t, plane)[at]);
      new_state[i] = widen(after(args, i, t, plane)[at]);
      if (i == 0 && args.grad_output) grad[i] = widen(args.grad_output[t * plane + at]);
      if (t == args.steps - 1) {
        if (args.grad_last[i]) grad[i] += widen(args.grad_last[i][at]);
      } else if (i >= kFirstPassed) {
        grad[i] += args.carry[i * plane + at];
      }
    }
  }
};

// An element's results at step t.
template <class Gates, class T, class P, class Out>
__device__ __forceinline__ void store_gradients(const PersistentBackward<T>& args, const P& place,
                                                int64_t tile, int64_t t, const Out& out) {
  constexpr int kGates = Gates::kGates;
  const int64_t plane = args.batch * args.state, at = place.element(tile);
#pragma unroll
  for (int i = 0; i < Gates::kPre; ++i) {
    T* d_z = args.d_z[i / kGates] + t * plane * kGates;
    narrow(out.d_z[i], d_z[place.element_of(tile, i % kGates, kGates)]);
  }
#pragma unroll
  for (int i = kFirstPassed; i < Gates::kStates; ++i) {
    args.carry[i * plane + at] = out.d_state[i];
    if (i > 0 && t == 0 && args.d_first[i]) narrow(out.d_state[i], args.d_first[i][at]);
  }
}

// The sum over the gates of the staged products of an element.
template <class Gates, class P>
__device__ __forceinline__ auto sum_of_gates(const P& place) {
  auto sum = place.sum(0);
#pragma unroll
  for (int gate = 1; gate < Gates::kGates; ++gate) sum += place.sum(gate);
  return sum;
}

template <class Gates, class T, int K>
__global__ void __launch_bounds__(kThreads<Gates>, 1)
    backward_kernel(const PersistentBackward<T> args, const PersistentPlan plan) {
  using V = compute_t<T>;
  constexpr int kGates = Gates::kGates;
  const int64_t steps = args.steps, plane = args.batch * args.state;
  const Place<Gates, V, K> place(plan, args.batch, args.state, args.arrivals, kGates);
  V weights[kWarpUnits][K];
  load_weights<T, K, true>(place, args.weights, args.weights_stride, weights);
  const StepScalars<V> scalars(args.scalars);
  const T* recurrent = args.d_z[kRecurrentShare];

  for (int64_t t = steps - 1; t >= 0; --t) {
    const bool last = t == steps - 1;
    for (int64_t tile = place.begin; tile < place.end; tile += kRows) {
      const bool finishes = place.finishes(tile);
      BackwardOperands<Gates, T> of;
      if (finishes) of.load(args, place, tile, t);
      if (!last) {
        if (tile == place.begin) {
          wait(place.arrived, static_cast<unsigned>(steps - 1 - t) * place.blocks);
        }
        stage(place, recurrent + (t + 1) * plane * kGates, kGates, tile);
        multiply(place, weights, kGates, place.gate);
      }
      if (!finishes) continue;
      if (!last) of.grad[0] += sum_of_gates<Gates>(place);
      const auto out =
          Gates::backward(of.saved, of.old_state, of.new_state, of.grad, scalars.values);
      store_gradients<Gates>(args, place, tile, t, out);
    }
    arrive(place.arrived);
  }

  if (!args.d_first[0]) return;
  wait(place.arrived, static_cast<unsigned>(steps) * place.blocks);
  for (int64_t tile = place.begin; tile < place.end; tile += kRows) {
    stage(place, recurrent, kGates, tile);
    multiply(place, weights, kGates, place.gate);
    if (!place.finishes(tile)) continue;
    V d_h = sum_of_gates<Gates>(place);
    if (Gates::kDirect) d_h += args.carry[place.element(tile)];
    narrow(d_h, args.d_first[0][place.element(tile)]);
  }
}

// The two kernels for a state of up to 32 K elements.
template <class T, int K>
struct Kernels {
  using Gates = described::LLTM_CELL<DeviceMath>;
  // Shared memory: the staged rows of `operands` vectors, and the sums.
  static constexpr int shared_bytes(int operands) {
    return (kRows * operands * K * kWarp + Gates::kGates * kRows * kUnits) *
           static_cast<int>(sizeof(compute_t<T>));
  }
  static constexpr int kForwardShared = shared_bytes(1);
  static constexpr int kBackwardShared = shared_bytes(Gates::kGates);

  // How many blocks of either kernel the current device runs at once; 0 where it runs none.
  static int64_t resident_blocks() {
    constexpr int kDevices = 64;
    static std::atomic<int64_t> known[kDevices];  // one more than the answer
    int device = 0;
    check(cudaGetDevice(&device), "name the current device");
    const int64_t before = device < kDevices ? known[device].load() : 0;
    if (before) return before - 1;
    const char* what = "ask for the device's size";
    int cooperative = 0, multiprocessors = 0, shared = 0;
    check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), what);
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), what);
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), what);
    int forward = 0, backward = 0;
    if (cooperative && kBackwardShared <= shared) {
      prepare(forward_kernel<Gates, T, K>, kForwardShared, &forward);
      prepare(backward_kernel<Gates, T, K>, kBackwardShared, &backward);
    }
    const int64_t blocks = static_cast<int64_t>(std::min(forward, backward)) * multiprocessors;
    if (device < kDevices) known[device].store(blocks + 1);
    return blocks;
  }

  static void forward(const PersistentForward<T>& args, const PersistentPlan& plan, Stream stream) {
    launch("run the sequence", forward_kernel<Gates, T, K>, shape(plan, kForwardShared), stream,
           args, plan);
  }
  static void backward(const PersistentBackward<T>& args, const PersistentPlan& plan,
                       Stream stream) {
    launch("run the sequence backward", backward_kernel<Gates, T, K>, shape(plan, kBackwardShared),
           stream, args, plan);
  }

 private:
  template <class Kernel>
  static void prepare(Kernel kernel, int shared, int* blocks) {
    const char* what = "prepare the sequence's kernel";
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), what);
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, kThreads<Gates>,
                                                        static_cast<size_t>(shared)),
          what);
  }
  static Shape shape(const PersistentPlan& plan, int shared) {
    return {plan.groups * plan.group_blocks, kThreads<Gates>, shared, true};
  }
};

// Calls `body` with the kernels for a state of that size; false where there are none.
template <class T, class Body>
bool with_kernels(int64_t state, const Body& body) {
  constexpr bool kFloat = sizeof(compute_t<T>) == 4;
  if (state <= 4 * kWarp) {
    body(Kernels<T, 4>());
  } else if (state <= 8 * kWarp) {
    body(Kernels<T, 8>());
  } else if (state <= 16 * kWarp) {
    body(Kernels<T, 16>());
  } else if (kFloat && state <= 32 * kWarp) {
    if constexpr (kFloat) body(Kernels<T, 32>());
  } else {
    return false;
  }
  return true;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

template <class T>
PersistentPlan persistent_plan(int64_t batch, int64_t state) {
  int64_t resident = 0;
  if (batch == 0 || state == 0) return {};
  with_kernels<T>(state, [&](auto kernels) { resident = kernels.resident_blocks(); });
  const int64_t group_blocks = ceil_div(state, kUnits);
  const int64_t most_groups = resident / group_blocks;
  if (most_groups == 0) return {};
  const int64_t tiles = ceil_div(batch, kRows);
  const int64_t group_rows = ceil_div(tiles, std::min(tiles, most_groups)) * kRows;
  if (group_rows > kMaxGroupRows) return {};
  return {ceil_div(batch, group_rows), group_blocks, group_rows};
}

template <class T>
void persistent_forward(const PersistentForward<T>& args, const PersistentPlan& plan,
                        Stream stream) {
  clear(args.arrivals, plan.groups * sizeof(unsigned), stream);
  with_kernels<T>(args.state, [&](auto kernels) { kernels.forward(args, plan, stream); });
}

template <class T>
void persistent_backward(const PersistentBackward<T>& args, const PersistentPlan& plan,
                         Stream stream) {
  clear(args.arrivals, plan.groups * sizeof(unsigned), stream);
  with_kernels<T>(args.state, [&](auto kernels) { kernels.backward(args, plan, stream); });
}

#define LLTM_INSTANTIATE(T)                                                                     \
  template PersistentPlan persistent_plan<T>(int64_t, int64_t);                                 \
  template void persistent_forward(const PersistentForward<T>&, const PersistentPlan&, Stream); \
  template void persistent_backward(const PersistentBackward<T>&, const PersistentPlan&, Stream);
LLTM_INSTANTIATE(float)
LLTM_INSTANTIATE(double)
LLTM_INSTANTIATE(BFloat16)
LLTM_INSTANTIATE(Half)
#undef LLTM_INSTANTIATE

}  // namespace lltm::cuda
