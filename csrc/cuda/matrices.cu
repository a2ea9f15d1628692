// What the products around the gates need: concatenation and sums over rows.
#include <algorithm>

#include "kernels.h"
#include "launch.h"
#include "storage.h"

namespace lltm::cuda {
namespace {

constexpr int kThreads = 128;

// One thread a pack of a row of x; S and F are multiples of N.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) concatenate_kernel(const Concatenate<T> args) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t width = args.state + args.features;
  const int64_t row = item / (width / N);
  if (row >= args.rows) return;
  const int64_t column = (item - row * (width / N)) * N;
  const T* from;
  if (column >= args.state) {
    from = args.input + row * args.features + (column - args.state);
  } else if (args.reset && args.reset[row]) {
    from = args.reset_h ? args.reset_h + row % args.batch * args.state + column : nullptr;
  } else if (row < args.batch) {
    from = args.h0 + row * args.state + column;
  } else {
    from = args.output + (row - args.batch) * args.state + column;
  }
  Pack<T, N> values = {};
  if (from) values = *reinterpret_cast<const Pack<T, N>*>(from);
  *reinterpret_cast<Pack<T, N>*>(args.x + row * width + column) = values;
}

// A block sums kSumColumns columns over kSumRows rows: thread (lane, y) takes every kSumLanes-th
// row.
constexpr int kSumColumns = 32;
constexpr int kSumLanes = 8;
constexpr int64_t kSumRows = 256;

template <class T, class Sum>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    column_sum_kernel(int64_t rows, int64_t columns, const T* values, Sum* sums) {
  using V = compute_t<T>;
  V* of_lane = shared_memory<V>();  // [kSumLanes, kSumColumns]
  const int64_t stretches = (columns + kSumColumns - 1) / kSumColumns;
  const int64_t chunk = blockIdx.x / stretches;
  const int x = static_cast<int>(threadIdx.x) % kSumColumns;
  const int y = static_cast<int>(threadIdx.x) / kSumColumns;
  const int64_t column = (blockIdx.x - chunk * stretches) * kSumColumns + x;
  const int64_t begin = chunk * kSumRows;
  const int64_t end = begin + kSumRows < rows ? begin + kSumRows : rows;
  V sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + y; row < end; row += kSumLanes) {
      sum += widen(values[row * columns + column]);
    }
  }
  of_lane[threadIdx.x] = sum;
  __syncthreads();
  if (y > 0 || column >= columns) return;
#pragma unroll
  for (int lane = 1; lane < kSumLanes; ++lane) sum += of_lane[lane * kSumColumns + x];
  narrow(sum, sums[chunk * columns + column]);
}

int64_t chunks(int64_t rows) { return std::max<int64_t>(1, (rows + kSumRows - 1) / kSumRows); }

template <class T, class Sum>
void sum_chunks(int64_t rows, int64_t columns, const T* values, Sum* sums, Stream stream) {
  const int64_t stretches = (columns + kSumColumns - 1) / kSumColumns;
  launch("sum over the rows", column_sum_kernel<T, Sum>,
         {chunks(rows) * stretches, kSumColumns * kSumLanes,
          kSumColumns * kSumLanes * static_cast<int>(sizeof(compute_t<T>))},
         stream, rows, columns, values, sums);
}

}  // namespace

template <class T>
void concatenate(const Concatenate<T>& args, Stream stream) {
  constexpr int kWide = kVector<T>;
  const bool wide = args.state % kWide == 0 && args.features % kWide == 0 &&
                    are_aligned(args.h0, args.output, args.input, args.reset_h, args.x);
  const int64_t items = args.rows * (args.state + args.features) / (wide ? kWide : 1);
  if (items == 0) return;
  launch("concatenate", wide ? concatenate_kernel<T, kWide> : concatenate_kernel<T, 1>,
         cover(items, kThreads), stream, args);
}

int64_t column_sum_partials(int64_t rows) {
  int64_t partials = 0;
  // Each round leaves one row for every chunk; the last writes the sums themselves.
  for (int64_t left = chunks(rows); left > 1; left = chunks(left)) partials += left;
  return partials;
}

template <class T>
void column_sum(const ColumnSum<T>& args, Stream stream) {
  if (args.columns == 0) return;
  int64_t left = chunks(args.rows);
  if (left == 1) {
    sum_chunks(args.rows, args.columns, args.values, args.sums, stream);
    return;
  }
  compute_t<T>* partials = args.partials;
  sum_chunks(args.rows, args.columns, args.values, partials, stream);
  while (chunks(left) > 1) {
    compute_t<T>* next = partials + left * args.columns;
    sum_chunks(left, args.columns, partials, next, stream);
    partials = next;
    left = chunks(left);
  }
  sum_chunks(left, args.columns, partials, args.sums, stream);
}

template void concatenate(const Concatenate<float>&, Stream);
template void concatenate(const Concatenate<double>&, Stream);
template void concatenate(const Concatenate<BFloat16>&, Stream);
template void concatenate(const Concatenate<Half>&, Stream);
template void column_sum(const ColumnSum<float>&, Stream);
template void column_sum(const ColumnSum<double>&, Stream);
template void column_sum(const ColumnSum<BFloat16>&, Stream);
template void column_sum(const ColumnSum<Half>&, Stream);

}  // namespace lltm::cuda
