// What the passes give and take, wherever their tensors are.
#pragma once

#include <optional>

#include "../cell.h"
#include "../contract.h"
#include "../cpu/types.h"

namespace lltm {

template <class Api, class Tensor = typename Api::Tensor>
struct CellResult {
  Tensor new_h;
  Tensor new_cell;
  std::optional<Tensor> gates;
};

template <class Api, class Tensor = typename Api::Tensor>
struct SequenceResult {
  Tensor output;
  Tensor h_n;
  Tensor c_n;
  // For backward; absent where there will be none.
  std::optional<Tensor> cells;
  std::optional<Tensor> gates;
};

// Which rows begin anew, and with what. A row's states are replaced before the step.
template <class T>
struct Resets {
  const bool* rows = nullptr;          // [T, B], or null where none does
  const T* state[Cell::kStates] = {};  // [B, S] each, or null for zeros
};

template <class T>
struct SequenceForward {
  SequenceSizes sizes;
  Scalars scalars;
  const T* input = nullptr;            // [T, B, F]
  const T* weights = nullptr;          // [GS, S / H + F]
  const T* bias = nullptr;             // [PS] or null
  const T* first[Cell::kStates] = {};  // [B, S] each, before the first step
  Resets<T> resets;
  // [chunk, B, GS] the input's share of the pre-activations of that many steps, or `saved`, in
  // whose rows it takes the first GS elements
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
  const T* weights = nullptr;          // [GS, S / H + F]
  const T* first[Cell::kStates] = {};  // [B, S] each, before the first step
  Resets<T> resets;
  const T* output = nullptr;               // [T, B, S]
  const T* states = nullptr;               // [T, N - 1, B, S]
  const T* saved = nullptr;                // [T, B, kSaved S]
  const T* grad_output = nullptr;          // [T, B, S] or null
  const T* grad_last[Cell::kStates] = {};  // [B, S] each, or null
  T* d_z[kShares] = {};                    // [T, B, GS] of each share
  T* d_first[Cell::kStates] = {};          // [B, S] each, or null
  T* d_reset_state[Cell::kStates] = {};    // [B, S] each, or null
};

}  // namespace lltm
