// Kernels over threads, with a grain that never makes a small problem slower.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../cpu/kernels.h"
#include "matrix.h"

namespace lltm {
inline namespace LLTM_CELL {

// Below this much work a second thread costs more than it saves.
constexpr int64_t kGrainElements = 4096;       // of the gates
constexpr int64_t kGrainFlops = 1 << 18;       // of a product
constexpr int64_t kTiledGrainFlops = 1 << 22;  // of a product by tile instructions

inline int64_t grain_of(int64_t grain, int64_t per_item) {
  return std::max<int64_t>(1, grain / std::max<int64_t>(1, per_item));
}

// kernel(args, begin, end) over [0, items), in pieces worth `grain` units of work, of which an item
// is `per_item`.
template <class Api, class Args>
void run(void (*kernel)(const Args&, int64_t, int64_t), const Args& args, int64_t items,
         int64_t per_item, int64_t grain) {
  Api::parallel_for(items, grain_of(grain, per_item),
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <class Api, class T>
void gates_forward(const cpu::GatesForward<T>& args) {
  run<Api>(cpu::kernels().of<T>().gates_forward, args, cpu::gate_items(args.rows, args.state),
           cpu::kItemRows * std::min(args.state, cpu::kColumns), kGrainElements);
}

template <class Api, class T>
void gates_backward(const cpu::GatesBackward<T>& args) {
  run<Api>(cpu::kernels().of<T>().gates_backward, args, cpu::gate_items(args.rows, args.state),
           cpu::kItemRows * std::min(args.state, cpu::kColumns), kGrainElements);
}

template <class Api, class T>
void column_sum(const cpu::ColumnSum<T>& args) {
  const auto kernel = cpu::kernels().of<T>().column_sum;
  const int64_t grain = std::max<int64_t>(64, kGrainElements / std::max<int64_t>(1, args.rows));
  Api::parallel_for(args.columns, grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

// Rows of a row-major operand that are read from the second-level cache.
template <class T>
int64_t row_major_rows() {
  constexpr int64_t row = cpu::kDepthBlock * static_cast<int64_t>(sizeof(T)), tile = 16;
  const int64_t bytes = std::min(cpu::second_level_cache() / 2, cpu::kMaxRowMajorBytes);
  return std::max(bytes / row / tile, int64_t{1}) * tile;
}

// What every product kernel knows of c = a b: all but c's data, b's columns and its own blocks.
template <class Args, class R, class T>
Args product_of(const Matrix<R>& c, const Matrix<const T>& a, const Matrix<const T>& b) {
  Args args{};
  args.rows = c.rows;
  args.columns = c.columns;
  args.depth = a.columns;
  args.a = a.data;
  args.a_row_stride = a.row_stride;
  args.a_column_stride = a.column_stride;
  args.b = b.data;
  args.b_row_stride = b.row_stride;
  args.c_row_stride = c.row_stride;
  return args;
}

// c = a b by a kernel of ours, in the types that are computed in.
template <class Api, class T>
void multiply_computed(const Matrix<T>& c, const Matrix<const T>& a, const Matrix<const T>& b,
                       int64_t sum_block) {
  const auto& kernels = cpu::kernels().of<T>();
  const auto& products = cpu::kernels().products<T>();
  auto args = product_of<cpu::MatrixProduct<T>>(c, a, b);
  args.b_column_stride = b.column_stride;
  args.c = c.data;
  args.sum_block = sum_block;
  args.row_block = a.row_stride == 1 ? products.transposed_rows : row_major_rows<T>();
  run<Api>(products.matmul, args,
           args.row_blocks() * kernels.panels(c.columns, cpu::kProductVectors),
           2 * std::min(c.rows, args.row_block) * a.columns * cpu::kProductVectors * kernels.width,
           kGrainFlops);
}

// c = a b in the 16-bit types; c is of that type too, or the float that it was summed in.
template <class Api, class T, class R>
void multiply_mixed(const Matrix<R>& c, const Matrix<const T>& a, const Matrix<const T>& b) {
  const auto& kernels = cpu::kernels().mixed<T>();
  auto args = product_of<cpu::MixedProduct<T>>(c, a, b);
  args.b_column_stride = b.column_stride;
  args.row_block = kernels.row_block;
  args.column_block = kernels.column_block;
  if constexpr (std::is_same_v<R, T>) {
    args.c = c.data;
  } else {
    args.wide_c = c.data;
  }
  run<Api>(kernels.product, args, args.blocks(),
           2 * std::min(c.rows, args.row_block) * a.columns * args.column_block, kGrainFlops);
}

// c = a b, by one of the above.
template <class Api, class T, class R>
void multiply(const Matrix<R>& c, const Matrix<const T>& a, const Matrix<const T>& b) {
  if constexpr (std::is_same_v<T, cpu::compute_t<T>>) {
    multiply_computed<Api>(c, a, b, cpu::kernels().sum_block);
  } else {
    multiply_mixed<Api>(c, a, b);
  }
}

}  // namespace LLTM_CELL
}  // namespace lltm
