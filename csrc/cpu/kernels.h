// The CPU kernels: raw pointers and sizes in, raw pointers out; one set per instruction set.
//
// Every array is dense and row-major unless a stride is given. A kernel works on the half-open
// range [begin, end) of work items, so that the caller may split the range over threads; the result
// does not depend on how.
//
// Names: B batch, F features, S state, K = S + F; N states, G gates and P pre-activations of an
// element, H heads: recurrent weights are block-diagonal in H blocks. C is the compute type of the
// storage type T.
#pragma once

#include <cstdint>

#include "../cell.h"
#include "bf16_tiles.h"
#include "products.h"
#include "types.h"

namespace lltm::cpu {
inline namespace LLTM_CELL {

// Gates -------------------------------------------------------------------------------------------

// One work item of the gate kernels is a stretch of so many columns of so many rows.
constexpr int64_t kColumns = 256, kItemRows = 8;

constexpr int64_t gate_items(int64_t rows, int64_t state) {
  return (rows + kItemRows - 1) / kItemRows * ((state + kColumns - 1) / kColumns);
}

template <class T>
struct GatesForward {
  int64_t rows;
  int64_t state;  // S
  Scalars scalars;
  const compute_t<T>* z = nullptr;  // [rows, GS] the pre-activations' share that is known, the
                                    // input's where shares are apart; or null. May be `saved`: each
                                    // element is read before it is written
  int64_t z_stride = 0;             // between rows of z
  const T* bias = nullptr;          // [PS] or null
  const T* old_state[Cell::kStates] = {};  // [rows, S] each
  T* new_state[Cell::kStates] = {};        // [rows, S] each
  T* saved = nullptr;                      // [rows, kSaved S] for backward, or null
  // Of types that are computed in another alone:
  compute_t<T>* h_next = nullptr;           // [rows, S] the new h in the compute type, or null
  compute_t<T>* carry[Cell::kStates] = {};  // [rows, S] of each state but h: from step to step,
                                            // read in place of old_state and written; or null
};

template <class T>
struct GatesBackward {
  int64_t rows;
  int64_t state;  // S
  Scalars scalars;
  const T* saved = nullptr;                          // [rows, kSaved S] as forward saved it
  const T* old_state[Cell::kStates] = {};            // [rows, S] each; null for one that the
  const T* new_state[Cell::kStates] = {};            // functor does not read
  const T* grad_h = nullptr;                         // [rows, S] from outside, or null for zeros
  const T* grad_state[Cell::kStates] = {};           // [rows, S] more of it and of the others'
  const compute_t<T>* carry_in[Cell::kStates] = {};  // [rows, S] from the following step, or null
  compute_t<T>* carry_out[Cell::kStates] = {};       // [rows, S] for the preceding step, or null
  T* d_old_state[Cell::kStates] = {};                // [rows, S] of all but h, or null
  T* d_z[kShares] = {};                              // [rows, GS] of each share
  compute_t<T>* d_z_next = nullptr;  // [rows, GS] the recurrent one in the compute type, or null;
                                     // of types that are computed in another alone
};

// Products with the gates in their epilogue -------------------------------------------------------

// h @ weights[:, :S].T, then the gates, of one time step. The weights are packed once per sequence.
// A work item is a panel of a head.
template <class T>
struct StepForward {
  GatesForward<T> gates;
  PackedProduct<T> h;  // of depth S / H
  PackedProduct<T> x;  // of depth F, or of depth 0 where the input's share is in gates.z
  int64_t heads = 1;
  bool from_last = false;  // the items from the last to the first: what the step before read last
                           // is still in a core's cache where all weights have no room
};

// Its products are of the storage type or of the compute type.
template <class T, class X>
struct CellForward {
  GatesForward<T> gates;
  DirectProduct<X> product;     // of the recurrent share, or of both
  DirectProduct<X> input = {};  // of the input's share; of depth 0 where it is in `product`
};

// d_z_after @ weights[:, :S], which is the gradient that the following step leaves for the hidden
// state, then the gates' backward of this step. A work item is a panel of a head, of
// kBackwardVectors vectors.
template <class T>
struct StepBackward {
  GatesBackward<T> gates;
  const compute_t<T>* d_z_after;  // [rows, GS] of the following step, the recurrent share
  const compute_t<T>* packed;     // [head][panel][GS / H][columns], as pack_backward makes it
  int64_t heads = 1;
  bool from_last = false;  // as forward's
};

template <class T>
struct Kernels {
  int64_t width;  // elements of a vector of the compute type
  void (*gates_forward)(const GatesForward<T>&, int64_t begin, int64_t end);
  void (*gates_backward)(const GatesBackward<T>&, int64_t begin, int64_t end);
  void (*column_sum)(const ColumnSum<T>&, int64_t begin, int64_t end);
  void (*pack_forward)(const Pack<T>&, int64_t begin, int64_t end);
  void (*pack_backward)(const Pack<T>&, int64_t begin, int64_t end);
  void (*step_forward)(const StepForward<T>&, int64_t begin, int64_t end);
  void (*step_backward)(const StepBackward<T>&, int64_t begin, int64_t end);
  void (*cell_few)(const CellForward<T, T>&, int64_t begin, int64_t end);  // x as it is
  // x transposed, one product
  void (*cell_many)(const CellForward<T, compute_t<T>>&, int64_t begin, int64_t end);
  int64_t max_few_rows;  // up to which cell_few is the fastest, as measured
  void (*transpose)(const Transpose<T>&);
  void (*widen)(const T* from, compute_t<T>* to, int64_t count);
  void (*narrow)(const compute_t<T>* from, T* to, int64_t count);
  int64_t batch_block;      // cell_many's x_stride is a multiple of it
  int64_t max_direct_rows;  // up to which cell_many is the fastest, as measured

  int64_t panels(int64_t columns, int64_t vectors) const {
    return (columns + vectors * width - 1) / (vectors * width);
  }
};

// Steps of a bfloat16 sequence in tiles (AMX, AVX512-BF16, NEON's BFDOT) --------------------------
// Operands are padded with zeros: rows to a multiple of row_multiple, the depth to one of
// kTileDepth.

constexpr int64_t kTiledForwardStates = bf16::kRows;  // of a panel
constexpr int64_t kTiledBackwardStates = 2 * bf16::kRows;

// h @ weights[:, :S].T, then the gates, of one time step. A work item is a panel.
struct TiledForward {
  GatesForward<BFloat16> gates;
  const BFloat16* h;  // [rows, S] padded
  int64_t h_stride;
  const BFloat16* packed;  // as pack_forward makes it
};

// d_z_after @ weights[:, :S], then the gates' backward of this step. A work item is a panel.
struct TiledBackward {
  GatesBackward<BFloat16> gates;
  const BFloat16* d_z_after;  // [rows, GS] of the following step, padded
  int64_t d_z_stride;
  const BFloat16* packed;  // as pack_backward makes it
};

struct TileKernels {
  int64_t row_multiple;
  void (*pack_forward)(const TilePack&, int64_t begin, int64_t end);
  void (*pack_backward)(const TilePack&, int64_t begin, int64_t end);
  void (*step_forward)(const TiledForward&, int64_t begin, int64_t end);
  void (*step_backward)(const TiledBackward&, int64_t begin, int64_t end);
};

struct KernelSet {
  const char* name;
  int64_t sum_block;  // terms of a sum that are summed before their sum is added as one term
  Kernels<float> f32;
  Kernels<double> f64;
  Kernels<BFloat16> bf16;
  Kernels<Half> f16;
  ProductKernels<float> products_f32;
  ProductKernels<double> products_f64;
  MixedKernels<BFloat16> mixed_bf16;
  MixedKernels<Half> mixed_f16;
  TileKernels tiles;  // null where there are none

  template <class T>
  const Kernels<T>& of() const;
  template <class T>
  const ProductKernels<T>& products() const;
  template <class T>
  const MixedKernels<T>& mixed() const;
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
template <>
inline const ProductKernels<float>& KernelSet::products<float>() const {
  return products_f32;
}
template <>
inline const ProductKernels<double>& KernelSet::products<double>() const {
  return products_f64;
}

template <>
inline const MixedKernels<BFloat16>& KernelSet::mixed<BFloat16>() const {
  return mixed_bf16;
}
template <>
inline const MixedKernels<Half>& KernelSet::mixed<Half>() const {
  return mixed_f16;
}

// The set for this processor: the strongest it can run, or a weaker one that the environment
// variable LLTM_CPU_CAPABILITY names (baseline, avx2, avx512, avx512_bf16, amx, neon_bf16). Decided
// once.
const KernelSet& kernels();

// Bytes of a core's second-level cache: as the system reports it, 1 MiB where it does not, or what
// the environment variable LLTM_CPU_L2_BYTES says. Decided once.
int64_t second_level_cache();

}  // namespace LLTM_CELL
}  // namespace lltm::cpu
