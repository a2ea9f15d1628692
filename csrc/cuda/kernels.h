// The CUDA kernels: raw device pointers and sizes in, queued on a stream, raw device pointers out.
//
// Every array is dense and row-major. No function here allocates, synchronises or reads device
// memory from the host, so all of them can be captured in a CUDA graph. The result of each is the
// same bit for bit from run to run: nothing is accumulated by atomics.
#pragma once

#include <cstdint>

#include "../cpu/types.h"

// cudaStream_t, so that a binding needs none of CUDA's headers.
struct CUstream_st;

namespace lltm::cuda {

using Stream = CUstream_st*;
using cpu::BFloat16;
using cpu::compute_t;
using cpu::Half;

template <class T>
struct GatesForward {
  int64_t rows;
  int64_t state;  // S
  double alpha;
  const T* z_input;   // [rows, 3S] pre-activations, or their share that comes from the input
  const T* z_state;   // [rows, 3S] the share that comes from the hidden state, or null
  const T* bias;      // [3S] or null
  const T* old_cell;  // [rows, S]
  T* new_h;           // [rows, S]
  T* new_cell;        // [rows, S], may be old_cell
  T* gates;           // [rows, 3S] saved for backward, or null where there will be none
};

template <class T>
void gates_forward(const GatesForward<T>& args, Stream stream);

template <class T>
struct GatesBackward {
  int64_t rows;
  int64_t state;  // S
  double alpha;
  const T* gates;                // [rows, 3S] as forward saved them
  const T* new_cell;             // [rows, S]
  const T* grad_h;               // [rows, S] from outside, or null for zeros
  const T* grad_h_extra;         // [rows, S] from the following step, or null for zeros
  const T* grad_cell;            // [rows, S] from outside, or null for zeros
  const compute_t<T>* carry_in;  // [rows, S] from the following step, or null for zeros
  compute_t<T>* carry_out;       // [rows, S] for the preceding step, or null; may be carry_in
  T* d_old_cell;                 // [rows, S], or null
  T* d_z;                        // [rows, 3S]
};

template <class T>
void gates_backward(const GatesBackward<T>& args, Stream stream);

// sums[j] = sum over rows of values[row, j], added in an order that depends on `rows` alone.
template <class T>
struct ColumnSum {
  int64_t rows;
  int64_t columns;
  const T* values;         // [rows, columns]
  T* sums;                 // [columns]
  compute_t<T>* partials;  // [column_sum_partials(rows), columns]; null where there are none
};

// Partial sums a column sum over that many rows goes through; 0 where it needs none.
int64_t column_sum_partials(int64_t rows);

template <class T>
void column_sum(const ColumnSum<T>& args, Stream stream);

// x[row] = [h before the step, input], for the steps one after the other.
template <class T>
struct Concatenate {
  int64_t rows;      // T * B, or B for one step
  int64_t batch;     // B
  int64_t features;  // F
  int64_t state;     // S
  const T* h0;       // [B, S]
  const T* output;   // [T, B, S], or null for one step
  const T* input;    // [rows, F]
  T* x;              // [rows, S + F]
};

template <class T>
void concatenate(const Concatenate<T>& args, Stream stream);

// A sequence in one launch -----------------------------------------------------------------------

// How a sequence is spread over the current device: `groups` of `group_blocks` blocks, each for
// `group_rows` rows of the batch. No groups where it does not fit, or would not be worth it.
struct PersistentPlan {
  int64_t groups = 0;
  int64_t group_blocks = 0;
  int64_t group_rows = 0;

  bool fits() const { return groups > 0; }
};

template <class T>
PersistentPlan persistent_plan(int64_t batch, int64_t state);

template <class T>
struct PersistentForward {
  int64_t steps;  // T, at least 1
  int64_t batch;  // B
  int64_t state;  // S
  double alpha;
  const T* weights;  // [3S, S] with rows weights_stride apart
  int64_t weights_stride;
  const T* bias;       // [3S] or null
  const T* h0;         // [B, S]
  const T* c0;         // [B, S]
  const T* projected;  // [T, B, 3S] the input's share of the pre-activations
  T* output;           // [T, B, S]
  T* h_n;              // [B, S]
  T* c_n;              // [B, S]
  T* cells;            // [T, B, S] saved for backward, or null
  T* gates;            // [T, B, 3S] saved for backward, or null
  unsigned* arrivals;  // [groups] to wait for one another; need not be set
};

template <class T>
void persistent_forward(const PersistentForward<T>& args, const PersistentPlan& plan,
                        Stream stream);

template <class T>
struct PersistentBackward {
  int64_t steps;  // T, at least 1
  int64_t batch;  // B
  int64_t state;  // S
  double alpha;
  const T* weights;  // [3S, S] with rows weights_stride apart
  int64_t weights_stride;
  const T* cells;        // [T, B, S]
  const T* gates;        // [T, B, 3S]
  const T* grad_output;  // [T, B, S] or null
  const T* grad_h_n;     // [B, S] or null
  const T* grad_c_n;     // [B, S] or null
  T* d_z;                // [T, B, 3S]
  T* d_h0;               // [B, S] or null
  T* d_c0;               // [B, S] or null
  compute_t<T>* carry;   // [B, S] scratch
  unsigned* arrivals;    // [groups] to wait for one another; need not be set
};

template <class T>
void persistent_backward(const PersistentBackward<T>& args, const PersistentPlan& plan,
                         Stream stream);

// Runtime ----------------------------------------------------------------------------------------

// Makes a device the current one for this library's own CUDA runtime.
void set_device(int device);

// Copies `bytes` within the device.
void copy(void* to, const void* from, int64_t bytes, Stream stream);

// Sets `bytes` to zero.
void clear(void* data, int64_t bytes, Stream stream);

}  // namespace lltm::cuda
