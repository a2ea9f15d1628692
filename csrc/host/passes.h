// What the passes give and take, wherever their tensors are.
#pragma once

#include <optional>

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

template <class T>
struct SequenceForward {
  SequenceSizes sizes;
  double alpha;
  const T* input;    // [T, B, F]
  const T* weights;  // [3S, S + F]
  const T* bias;     // [3S] or null
  const T* h0;       // [B, S]
  const T* c0;       // [B, S]
  // [chunk, B, 3S] the input's share of the pre-activations of that many steps, or `gates`,
  // [T, B, 3S]
  cpu::compute_t<T>* projected;
  bool in_place;  // the latter
  int64_t chunk;
  T* output;  // [T, B, S]
  T* c_n;     // [B, S]
  T* cells;   // [T, B, S] or null
  T* gates;   // [T, B, 3S] or null

  // The input's share of the pre-activations of the chunk that begins with step `first`.
  cpu::compute_t<T>* share(int64_t first) const {
    return in_place ? projected + first * sizes.cell.batch * 3 * sizes.cell.state : projected;
  }
};

template <class T>
struct SequenceBackward {
  SequenceSizes sizes;
  double alpha;
  const T* weights;      // [3S, S + F]
  const T* cells;        // [T, B, S]
  const T* gates;        // [T, B, 3S]
  const T* grad_output;  // [T, B, S] or null
  const T* grad_h_n;     // [B, S] or null
  const T* grad_c_n;     // [B, S] or null
  T* d_z;                // [T, B, 3S]
  T* d_h0;               // [B, S] or null
  T* d_c0;               // [B, S] or null
};

}  // namespace lltm
