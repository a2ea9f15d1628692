// The weights' gradient of a sequence, one product over all its steps.
#pragma once

#include <algorithm>

#include "../cell.h"
#include "../contract.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "resets.h"
#include "scratch.h"

namespace lltm {
inline namespace LLTM_CELL {

// X = [h before the step, input] of every step, [T * B, S + F]
template <class T>
void concatenate_steps(const T* h0, const T* output, const T* input, const Resets<T>& resets,
                       const SequenceSizes& sizes, T* x) {
  const int64_t batch = sizes.cell.batch, features = sizes.cell.features, state = sizes.cell.state;
  const ResetStates<T> replaced(resets, sizes);
  for (int64_t t = 0; t < sizes.steps; ++t) {
    const T* h = t ? output + (t - 1) * batch * state : h0;
    if (const bool* rows = reset_rows(resets, sizes, t)) h = replaced.replace(0, h, rows);
    concatenate(h, input + t * batch * features, sizes.cell, x + t * batch * (state + features));
  }
}

template <class T>
struct WeightGradient {
  SequenceSizes sizes;
  const T* d_z[kShares] = {};  // [T, B, GS] of each share
  const T* h0 = nullptr;       // [B, S]
  const T* output = nullptr;   // [T, B, S]
  const T* input = nullptr;    // [T, B, F]
  Resets<T> resets = {};
  T* d_weights = nullptr;  // [GS, S / H + F]
};

// c = a b, a sum over all steps.
template <class Api, class T>
void multiply_steps(const Matrix<T>& c, const Matrix<const T>& a, const Matrix<const T>& b) {
  if constexpr (is_compute_type_v<T>) {
    multiply_computed<Api>(c, a, b,
                           std::min(cpu::steps_sum_block(a.columns), cpu::kernels().sum_block));
  } else {
    multiply_mixed<Api>(c, a, b);
  }
}

// d_weights = d_z.T X over all steps at once. X is put together first: d_z is four times as large
// or more and would be packed again for each piece of it.
template <class Api, class T>
void weight_gradient(const WeightGradient<T>& args) {
  const CellSizes& cell = args.sizes.cell;
  const int64_t rows = args.sizes.steps * cell.batch, state = cell.state, head = cell.head();
  const Scratch<T> x(rows * (state + cell.features));
  concatenate_steps(args.h0, args.output, args.input, args.resets, args.sizes, x.data());
  const auto d_weights = dense(args.d_weights, cell.gates(), cell.width());
  const auto steps = dense<const T>(x.data(), rows, state + cell.features);
  const auto d_z = [&](int share) { return dense(args.d_z[share], rows, cell.gates()); };
  if (cell.heads == 1 && !Cell::kSplit) {
    return multiply_steps<Api>(d_weights, d_z(0).transposed(), steps);
  }
  multiply_steps<Api>(d_weights.column_range(head, cell.features), d_z(0).transposed(),
                      steps.column_range(state, cell.features));
  const int64_t pieces = cell.heads == 1 ? 1 : Cell::kGates;
  for (int64_t k = 0; k < cell.heads; ++k) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t first = piece * state + k * head, count = cell.gates() / cell.heads / pieces;
      multiply_steps<Api>(
          Matrix<T>{args.d_weights + first * cell.width(), count, head, cell.width()},
          d_z(kRecurrentShare).column_range(first, count).transposed(),
          steps.column_range(k * head, head));
    }
  }
}

}  // namespace LLTM_CELL
}  // namespace lltm
