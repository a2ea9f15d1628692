// The CPU kernels: raw pointers and sizes in, raw pointers out; one set per instruction set.
//
// Every array is dense and row-major. A kernel works on the half-open range [begin, end) of work
// items, so that the caller may split the range over threads; the result does not depend on how.
#pragma once

#include <cstdint>

#include "types.h"

namespace lltm::cpu {

// One work item of the gate kernels is a stretch of this many columns of one row.
constexpr int64_t kColumns = 256;

constexpr int64_t gate_items(int64_t rows, int64_t state) {
  return rows * ((state + kColumns - 1) / kColumns);
}

template <class T>
struct GatesForward {
  int64_t rows;
  int64_t state;      // S
  double alpha;
  const T* z_input;   // [rows, 3S] pre-activations, or their share that comes from the input
  const T* z_state;   // [rows, 3S] the share that comes from the hidden state, or null
  const T* bias;      // [3S] or null
  const T* old_cell;  // [rows, S]
  T* new_h;           // [rows, S]
  T* new_cell;        // [rows, S]
  T* gates;           // [rows, 3S] saved for backward, or null where there will be none
};

template <class T>
struct GatesBackward {
  int64_t rows;
  int64_t state;  // S
  double alpha;
  const T* gates;                // [rows, 3S] as forward saved them
  const T* new_cell;             // [rows, S]
  const T* grad_h;               // [rows, S] from outside, or null for zeros
  const T* grad_h_next;          // [rows, S] from the following step, or null for zeros
  const T* grad_cell;            // [rows, S] from outside, or null for zeros
  const compute_t<T>* carry_in;  // [rows, S] from the following step, or null for zeros
  compute_t<T>* carry_out;       // [rows, S] for the preceding step, or null
  T* d_old_cell;                 // [rows, S], or null
  T* d_z;                        // [rows, 3S]
};

// sums[j] = sum over rows of values[row, j], for the columns [begin, end); accumulated in order of
// rows in the compute type.
template <class T>
struct ColumnSum {
  int64_t rows;
  int64_t columns;
  const T* values;  // [rows, columns]
  T* sums;          // [columns]
};

template <class T>
struct Kernels {
  void (*gates_forward)(const GatesForward<T>&, int64_t begin, int64_t end);
  void (*gates_backward)(const GatesBackward<T>&, int64_t begin, int64_t end);
  void (*column_sum)(const ColumnSum<T>&, int64_t begin, int64_t end);
};

struct KernelSet {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
  Kernels<BFloat16> bf16;
  Kernels<Half> f16;

  template <class T>
  const Kernels<T>& of() const;
};

template <>
inline const Kernels<float>& KernelSet::of<float>() const {
  return f32;
}
template <>
inline const Kernels<double>& KernelSet::of<double>() const {
  return f64;
}
template <>
inline const Kernels<BFloat16>& KernelSet::of<BFloat16>() const {
  return bf16;
}
template <>
inline const Kernels<Half>& KernelSet::of<Half>() const {
  return f16;
}

// The set for this processor: the strongest it can run, or a weaker one that the environment
// variable LLTM_CPU_CAPABILITY names (baseline, avx2, avx512). Decided once.
const KernelSet& kernels();

}  // namespace lltm::cpu
