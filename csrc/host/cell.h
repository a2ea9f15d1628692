// One step on the CPU: a product, the gates.
//
// Most steps read the weights where they are and need no concatenation.
#pragma once

#include <algorithm>

#include "../contract.h"
#include "in_place.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "scratch.h"
#include "widened.h"

namespace lltm {
inline namespace LLTM_CELL {

// Weights that stay in a core's own cache while they are used, and a megabyte at most: up to there
// reading them in place beat packing them on an AMD Zen 4, which has that much. Larger caches have
// not been tried with more.
constexpr int64_t kMaxCachedBytes = 1 << 20;

template <class C>
bool is_cached(int64_t count) {
  return count * static_cast<int64_t>(sizeof(C)) <=
         std::min(cpu::second_level_cache(), kMaxCachedBytes);
}

template <class T>
bool has_cached_weights(const CellSizes& sizes) {
  return is_cached<cpu::compute_t<T>>(sizes.gates() * sizes.width());
}

inline int64_t padded(int64_t rows, int64_t block) { return (rows + block - 1) / block * block; }

// Up to here widening a 16-bit type costs less than it takes to get through to BLAS.
constexpr int64_t kWidenedRows = 16;

template <class T>
bool is_worth_widening(const CellSizes& sizes) {
  return sizes.batch <= kWidenedRows && has_cached_weights<T>(sizes);
}

// What a vector of states reads again and again, x and its weights, stays in a core's own cache.
template <class T>
bool has_cached_rows(const CellSizes& sizes) {
  const auto& kernels = cpu::kernels().of<T>();
  const int64_t rows = padded(sizes.batch, kernels.batch_block) + Cell::kGates * kernels.width;
  return rows * sizes.width() * static_cast<int64_t>(sizeof(cpu::compute_t<T>)) <=
         cpu::second_level_cache();
}

// Forward reads the weights in place for a few rows, and for more where they fill three quarters of
// their vectors.
template <class T>
bool is_forward_direct(const CellSizes& sizes) {
  if (is_few<T>(sizes)) return true;
  if (!is_compute_type_v<T> && !is_worth_widening<T>(sizes)) return false;
  const auto& kernels = cpu::kernels().of<T>();
  return sizes.batch <= kernels.max_direct_rows && has_cached_rows<T>(sizes) &&
         4 * sizes.batch >= 3 * padded(sizes.batch, kernels.batch_block);
}

// Rows up to which backward reads cached weights where they are.
constexpr int64_t kManyRows = 512;

// Whether few rows, or products of few terms, are multiplied where they are.
template <class T>
bool is_few_backward(const CellSizes& sizes) {
  if constexpr (is_compute_type_v<T>) {
    return sizes.batch <= cpu::kernels().products<T>().few_rows;
  } else {
    return false;
  }
}

template <class T>
bool is_backward_direct(const CellSizes& sizes) {
  return is_few_backward<T>(sizes) ||
         (is_compute_type_v<T> && sizes.batch <= kManyRows && has_cached_weights<T>(sizes));
}

// Forward of one step with the weights read in place.
template <class Api, class T>
void cell_direct(const CellSizes& sizes, const T* input, const T* weights, const T* old_h,
                 const cpu::GatesForward<T>& gates) {
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  const int64_t width = state + features;
  const auto& kernels = cpu::kernels().of<T>();
  if (is_few<T>(sizes)) {
    const Scratch<T> joined(batch * width);
    concatenate(old_h, input, sizes, joined.data());
    return run_direct<Api, T, T>(kernels.cell_few,
                                 {gates, {joined.data(), width, weights, width, state, width}});
  }
  const int64_t stride = padded(batch, kernels.batch_block);
  const Scratch<cpu::compute_t<T>> x(width * stride);
  kernels.transpose({batch, state, old_h, x.data(), stride});
  kernels.transpose({batch, features, input, x.data() + state * stride, stride});
  const Widened<T> wide(weights, sizes.gates() * width);
  run_direct<Api, T, cpu::compute_t<T>>(
      kernels.cell_many, {gates, {x.data(), stride, wide.data(), width, state, width}});
}

// c = a b for a cell: both operands read where they are, or in packed blocks.
template <class Api, class T>
void cell_product(bool direct, const Matrix<T>& c, const Matrix<const T>& a,
                  const Matrix<const T>& b) {
  if constexpr (is_compute_type_v<T>) {
    if (direct) {
      const auto& kernels = cpu::kernels().of<T>();
      auto args = product_of<cpu::Product<T>>(c, a, b);
      args.c = c.data;
      args.is_b_cached = is_cached<T>(b.rows * b.row_stride);
      return run<Api>(cpu::kernels().products<T>().product, args,
                      kernels.panels(c.columns, cpu::kProductVectors),
                      2 * c.rows * a.columns * cpu::kProductVectors * kernels.width, kGrainFlops);
    }
  }
  multiply<Api>(c, a, b);
}

template <class Api, class T>
void cell_forward(const CellForward<T>& args) {
  const CellSizes& sizes = args.sizes;
  cpu::GatesForward<T> gates{sizes.batch, sizes.state, args.scalars};
  gates.bias = args.bias;
  std::copy_n(args.old_state, Cell::kStates, gates.old_state);
  std::copy_n(args.new_state, Cell::kStates, gates.new_state);
  gates.saved = args.saved;
  if (is_forward_direct<T>(sizes)) {
    return cell_direct<Api, T>(sizes, args.input, args.weights, args.old_state[0], gates);
  }
  const int64_t width = sizes.width(), rows = sizes.gates();
  const Scratch<T> x(sizes.batch * width);
  concatenate(args.old_state[0], args.input, sizes, x.data());
  const Scratch<cpu::compute_t<T>> z(sizes.batch * rows);
  multiply<Api>(dense(z.data(), sizes.batch, rows), dense<const T>(x.data(), sizes.batch, width),
                dense(args.weights, rows, width).transposed());
  gates.z = z.data();
  gates.z_stride = rows;
  gates_forward<Api, T>(gates);
}

// d_weights = d_z.T [old_h, input]
template <class Api, class T>
void cell_weight_gradient(const CellBackward<T>& args, const Matrix<const T>& d_z) {
  const CellSizes& sizes = args.sizes;
  const Scratch<T> x(sizes.batch * sizes.width());
  concatenate(args.old_h, args.input, sizes, x.data());
  cell_product<Api>(is_few_backward<T>(sizes), dense(args.d.weights, sizes.gates(), sizes.width()),
                    d_z.transposed(), dense<const T>(x.data(), sizes.batch, sizes.width()));
}

template <class Api, class T>
void cell_backward(const CellBackward<T>& args) {
  const CellSizes& sizes = args.sizes;
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  const Scratch<T> d_z(batch * sizes.gates());
  cpu::GatesBackward<T> step{batch, state, args.scalars};
  step.saved = args.saved;
  std::copy_n(args.old_state, Cell::kStates, step.old_state);
  std::copy_n(args.new_state, Cell::kStates, step.new_state);
  std::copy_n(args.grad_state, Cell::kStates, step.grad_state);
  std::copy_n(args.d_old_state, Cell::kStates, step.d_old_state);
  step.d_z[0] = d_z.data();
  gates_backward<Api, T>(step);
  const bool direct = is_backward_direct<T>(sizes);
  const auto d = dense<const T>(d_z.data(), batch, sizes.gates());
  const auto w = dense(args.weights, sizes.gates(), sizes.width());
  if (args.d.input) {
    cell_product<Api>(direct, dense(args.d.input, batch, features), d,
                      w.column_range(state, features));
  }
  if (args.d_old_state[0]) {
    cell_product<Api>(direct, dense(args.d_old_state[0], batch, state), d,
                      w.column_range(0, state));
  }
  if (args.d.weights) cell_weight_gradient<Api>(args, d);
  if (args.d.bias) column_sum<Api, T>({batch, sizes.gates(), d_z.data(), args.d.bias});
}

}  // namespace LLTM_CELL
}  // namespace lltm
