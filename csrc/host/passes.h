// The passes, as raw pointers on any device: what each reads, and where it writes.
#pragma once

#include "../cell.h"
#include "../contract.h"
#include "../cpu/types.h"

namespace lltm {
inline namespace LLTM_CELL {

// The gradients that all passes have in common, null for one that is not wanted.
template <class T>
struct ParameterGradients {
  T* input = nullptr;    // [T, B, F]
  T* weights = nullptr;  // [GS, S / H + F]
  T* bias = nullptr;     // [PS]
};

// One step. Its gates take both shares of the pre-activations added, and its weights are full.
template <class T>
struct CellForward {
  CellSizes sizes;
  Scalars scalars;
  const T* input = nullptr;                // [B, F]
  const T* weights = nullptr;              // [GS, S + F]
  const T* bias = nullptr;                 // [GS] or null
  const T* old_state[Cell::kStates] = {};  // [B, S] each
  T* new_state[Cell::kStates] = {};        // [B, S] each
  T* saved = nullptr;                      // [B, kSaved S] or null
};

template <class T>
struct CellBackward {
  CellSizes sizes;
  Scalars scalars;
  const T* input = nullptr;                 // [B, F], or null where d.weights is
  const T* weights = nullptr;               // [GS, S + F]
  const T* old_h = nullptr;                 // [B, S], or null where d.weights is
  const T* old_state[Cell::kStates] = {};   // [B, S] each, null for one that the functor does
  const T* new_state[Cell::kStates] = {};   // not read
  const T* saved = nullptr;                 // [B, kSaved S]
  const T* grad_state[Cell::kStates] = {};  // [B, S] each, or null for zeros
  ParameterGradients<T> d = {};
  T* d_old_state[Cell::kStates] = {};  // [B, S] each, or null
};

// Which rows begin again, and with what. A row's states are replaced before the step.
template <class T>
struct Resets {
  const bool* rows = nullptr;          // [T, B], or null where none does
  const T* state[Cell::kStates] = {};  // [B, S] each, or null for zeros
};

// The weights of a forward pass: side by side in one array, or in two.
template <class T>
struct SequenceWeights {
  const T* state = nullptr;  // [GS, S / H]
  int64_t state_stride = 0;  // between rows
  const T* input = nullptr;  // [GS, F]
  int64_t input_stride = 0;

  SequenceWeights() = default;
  SequenceWeights(const T* both, const CellSizes& sizes)
      : state(both),
        state_stride(sizes.width()),
        input(both + sizes.head()),
        input_stride(sizes.width()) {}
  SequenceWeights(const T* of_state, const T* of_input, const CellSizes& sizes)
      : state(of_state),
        state_stride(sizes.head()),
        input(of_input),
        input_stride(sizes.features) {}
};

template <class T>
struct SequenceForward {
  SequenceSizes sizes;
  Scalars scalars;
  const T* input = nullptr;  // [T, B, F]
  SequenceWeights<T> weights;
  const T* bias = nullptr;             // [PS] or null
  const T* first[Cell::kStates] = {};  // [B, S] each, before the first step
  Resets<T> resets = {};
  // [chunk, B, GS] the input's share of the pre-activations of that many steps, or `saved`, in
  // whose rows it takes the first GS elements; null where each step multiplies its input
  cpu::compute_t<T>* projected = nullptr;
  bool in_place = false;  // the latter
  int64_t chunk = 0;
  T* output = nullptr;          // [T, B, S]
  T* last[Cell::kStates] = {};  // [B, S] each, after the last step
  T* states = nullptr;          // [T, N - 1, B, S] all but h, or null
  T* saved = nullptr;           // [T, B, kSaved S] or null

  // Between two rows of the input's share.
  int64_t share_stride() const {
    return (in_place ? Cell::kSaved : Cell::kGates) * sizes.cell.state;
  }
  // The input's share of the pre-activations of the chunk that begins with step `first`.
  cpu::compute_t<T>* share(int64_t step) const {
    return in_place ? projected + step * sizes.cell.batch * share_stride() : projected;
  }
};

template <class T>
struct SequenceBackward {
  SequenceSizes sizes;
  Scalars scalars;
  const T* input = nullptr;            // [T, B, F], or null where d.weights is
  const T* weights = nullptr;          // [GS, S / H + F]
  const T* first[Cell::kStates] = {};  // [B, S] each, before the first step
  Resets<T> resets = {};
  const T* output = nullptr;               // [T, B, S]
  const T* states = nullptr;               // [T, N - 1, B, S]
  const T* saved = nullptr;                // [T, B, kSaved S]
  const T* grad_output = nullptr;          // [T, B, S] or null
  const T* grad_last[Cell::kStates] = {};  // [B, S] each, or null
  T* d_z[kShares] = {};                    // [T, B, GS] of each share, scratch
  ParameterGradients<T> d = {};
  T* d_first[Cell::kStates] = {};        // [B, S] each, or null
  T* d_reset_state[Cell::kStates] = {};  // [B, S] each, or null
};

}  // namespace LLTM_CELL
}  // namespace lltm
