// The CUDA kernels: raw device pointers and sizes in, queued on a stream, raw device pointers out.
//
// Letters as in cpu/kernels.h: B batch, F features, S state; N states, G gates and P
// pre-activations of an element.
//
// Every array is dense and row-major. No function here allocates, synchronises or reads device
// memory from the host, so all of them can be captured in a CUDA graph. The result of each is the
// same bit for bit from run to run: nothing is accumulated by atomics.
#pragma once

#include <cstdint>

#include "../cell.h"
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
  Scalars scalars;
  const T* z_input = nullptr;      // [rows, GS] the input's share of the pre-activations, or all
  const T* z_recurrent = nullptr;  // [rows, GS] the recurrent share, or null
  const T* bias = nullptr;         // [PS] or null
  const T* old_state[Cell::kStates] = {};  // [rows, S] each
  T* new_state[Cell::kStates] = {};        // [rows, S] each, may be old_state
  T* saved = nullptr;  // [rows, kSaved S] for backward, or null where there will be none
};

template <class T>
void gates_forward(const GatesForward<T>& args, Stream stream);

template <class T>
struct GatesBackward {
  int64_t rows;
  int64_t state;  // S
  Scalars scalars;
  const T* saved = nullptr;                 // [rows, kSaved S] as forward saved it
  const T* old_state[Cell::kStates] = {};   // [rows, S] each; null for one that the functor does
  const T* new_state[Cell::kStates] = {};   // not read
  const T* grad_state[Cell::kStates] = {};  // [rows, S] each from outside, or null for zeros
  const T* grad_h_extra = nullptr;          // [rows, S] more for h, or null for zeros
  const compute_t<T>* carry_in[Cell::kStates] = {};  // [rows, S] from the following step, or null
  compute_t<T>* carry_out[Cell::kStates] = {};  // [rows, S] for the preceding step, or null; may
                                                // be carry_in
  T* d_old_state[Cell::kStates] = {};           // [rows, S] of all but h, or null
  T* d_z[kShares] = {};                         // [rows, GS] of each share
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
  int64_t rows;                 // T * B, or B for one step
  int64_t batch;                // B
  int64_t features;             // F
  int64_t state;                // S
  const T* h0 = nullptr;        // [B, S]
  const T* output = nullptr;    // [T, B, S], or null for one step
  const T* input = nullptr;     // [rows, F]
  const bool* reset = nullptr;  // [rows] where h is reset_h, or null
  const T* reset_h = nullptr;   // [B, S], or null for zeros
  T* x = nullptr;               // [rows, S + F]
};

template <class T>
void concatenate(const Concatenate<T>& args, Stream stream);

// Heads: recurrent weights that are block-diagonal in S / head blocks of each gate.
template <class T>
struct ExpandHeads {
  int64_t rows;      // GS
  int64_t state;     // S
  int64_t head;      // columns of a block
  const T* weights;  // [GS, head] with rows `stride` apart
  int64_t stride;
  T* full;  // [GS, S], zero outside the blocks
};

template <class T>
void expand_heads(const ExpandHeads<T>& args, Stream stream);

// The other way round; what is outside the blocks is not read.
template <class T>
struct GatherHeads {
  int64_t rows;
  int64_t state;
  int64_t head;
  const T* full;  // [GS, S]
  T* weights;     // [GS, head] with rows `stride` apart
  int64_t stride;
};

template <class T>
void gather_heads(const GatherHeads<T>& args, Stream stream);

// Resets -----------------------------------------------------------------------------------------

// to = from, or in rows that begin again reset_state; [rows, S] each.
template <class T>
struct ResetStates {
  int64_t rows;
  int64_t state;      // S
  const bool* reset;  // [rows]
  const T* from[Cell::kStates] = {};
  const T* reset_state[Cell::kStates] = {};  // null for zeros
  T* to[Cell::kStates] = {};                 // may be none of `from`
};

template <class T>
void reset_states(const ResetStates<T>& args, Stream stream);

// Moves what a step leaves to the states before it, in rows that began again, to `sums`.
template <class T>
struct ResetGradients {
  int64_t rows;
  int64_t state;                  // S
  const bool* reset;              // [rows]
  T* d_h = nullptr;               // [rows, S] through the product
  compute_t<T>* carry = nullptr;  // [N, rows, S] otherwise
  compute_t<T>* sums = nullptr;   // [N, rows, S], or null where nobody wants them
};

template <class T>
void reset_gradients(const ResetGradients<T>& args, Stream stream);

// to = stored + wide, each null for zeros.
template <class T>
struct AddValues {
  int64_t count;
  const T* stored;
  const compute_t<T>* wide;
  T* to;
};

template <class T>
void add_values(const AddValues<T>& args, Stream stream);

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
  Scalars scalars;
  const T* weights = nullptr;  // [GS, S] with rows weights_stride apart
  int64_t weights_stride = 0;
  const T* bias = nullptr;             // [PS] or null
  const T* first[Cell::kStates] = {};  // [B, S] each, before the first step
  const T* projected = nullptr;        // [T, B, GS] the input's share of the pre-activations
  T* output = nullptr;                 // [T, B, S]
  T* last[Cell::kStates] = {};         // [B, S] each, after the last step
  T* states = nullptr;                 // [T, N - 1, B, S] all but h for backward, or null
  T* saved = nullptr;                  // [T, B, kSaved S] for backward, or null
  unsigned* arrivals = nullptr;        // [groups] to wait for one another; need not be set
};

template <class T>
void persistent_forward(const PersistentForward<T>& args, const PersistentPlan& plan,
                        Stream stream);

template <class T>
struct PersistentBackward {
  int64_t steps;  // T, at least 1
  int64_t batch;  // B
  int64_t state;  // S
  Scalars scalars;
  const T* weights = nullptr;  // [GS, S] with rows weights_stride apart
  int64_t weights_stride = 0;
  const T* first[Cell::kStates] = {};      // [B, S] each, before the first step
  const T* output = nullptr;               // [T, B, S]
  const T* states = nullptr;               // [T, N - 1, B, S]
  const T* saved = nullptr;                // [T, B, kSaved S]
  const T* grad_output = nullptr;          // [T, B, S] or null
  const T* grad_last[Cell::kStates] = {};  // [B, S] each, or null
  T* d_z[kShares] = {};                    // [T, B, GS] of each share
  T* d_first[Cell::kStates] = {};          // [B, S] each, or null
  compute_t<T>* carry = nullptr;           // [N, B, S] scratch
  unsigned* arrivals = nullptr;            // [groups] to wait for one another; need not be set
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
