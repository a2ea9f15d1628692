// The steps of a bfloat16 sequence in tiles, where the processor multiplies them.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "../cpu/kernels.h"
#include "parallel.h"
#include "passes.h"
#include "resets.h"
#include "scratch.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class T>
constexpr bool kTiles = std::is_same_v<T, cpu::BFloat16>;

template <class T>
bool has_tiles(const CellSizes& sizes) {
  return kTiles<T> && sizes.heads == 1 && cpu::kernels().tiles.step_forward;
}

inline int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Panels of so many states each.
constexpr int64_t tiled_panels(int64_t state, int64_t states) {
  return (state + states - 1) / states;
}

// A [rows, depth] operand in whole tiles: where it is stored if it is that there, else a copy in
// zeros.
class TileOperand {
 public:
  using T = cpu::BFloat16;

  TileOperand(int64_t rows, int64_t depth)
      : rows_(rows),
        depth_(depth),
        stride_(round_up(depth, cpu::kTileDepth)),
        in_place_(rows % cpu::kernels().tiles.row_multiple == 0 && stride_ == depth),
        elements_(in_place_ ? 0 : round_up(rows, cpu::kernels().tiles.row_multiple) * stride_),
        copy_(elements_) {
    std::fill_n(copy_.data(), elements_, T{0});
  }

  int64_t stride() const { return stride_; }

  const T* of(const T* stored) const {
    if (in_place_) return stored;
    for (int64_t row = 0; row < rows_; ++row) {
      std::memcpy(copy_.data() + row * stride_, stored + row * depth_, depth_ * sizeof(T));
    }
    return copy_.data();
  }

 private:
  int64_t rows_, depth_, stride_;
  bool in_place_;
  int64_t elements_;
  Scratch<T> copy_;
};

// The state's weights, packed for tiles in panels of so many states, each of `depth` terms.
template <class Api>
class TiledWeights {
 public:
  using T = cpu::BFloat16;

  // The rows of `weights` are `stride` apart.
  TiledWeights(void (*kernel)(const cpu::TilePack&, int64_t, int64_t), const T* weights,
               int64_t stride, const CellSizes& sizes, int64_t states, int64_t columns,
               int64_t depth)
      : panels_(tiled_panels(sizes.state, states)),
        packed_(panels_ * columns * round_up(depth, cpu::kTileDepth)) {
    run<Api>(kernel, cpu::TilePack{weights, stride, sizes.state, sizes.state, packed_.data()},
             panels_, columns * depth, kGrainElements);
  }

  int64_t panels() const { return panels_; }
  const T* data() const { return packed_.data(); }

 private:
  int64_t panels_;
  Scratch<T> packed_;
};

// As ForwardProduct.
template <class Api>
class TiledForwardProduct {
 public:
  using T = cpu::BFloat16;

  explicit TiledForwardProduct(const SequenceForward<T>& args)
      : weights_(cpu::kernels().tiles.pack_forward, args.weights.state, args.weights.state_stride,
                 args.sizes.cell, cpu::kTiledForwardStates, Cell::kGates * cpu::kTiledForwardStates,
                 args.sizes.cell.state),
        operand_(args.sizes.cell.batch, args.sizes.cell.state),
        h_(args.first[0]) {}

  void replace_h(int64_t, const T* h) { h_ = h; }

  void step(int64_t, const cpu::GatesForward<T>& gates) {
    const cpu::TiledForward step{gates, operand_.of(h_), operand_.stride(), weights_.data()};
    run<Api>(cpu::kernels().tiles.step_forward, step, weights_.panels(),
             2 * gates.rows * gates.state * Cell::kGates * cpu::kTiledForwardStates,
             kTiledGrainFlops);
    h_ = gates.new_state[0];
  }

 private:
  TiledWeights<Api> weights_;
  TileOperand operand_;
  const T* h_;  // before the next step
};

// As BackwardProduct.
template <class Api>
class TiledBackwardProduct {
 public:
  using T = cpu::BFloat16;

  explicit TiledBackwardProduct(const SequenceBackward<T>& args)
      : weights_(cpu::kernels().tiles.pack_backward, args.weights, args.sizes.cell.width(),
                 args.sizes.cell, cpu::kTiledBackwardStates, cpu::kTiledBackwardStates,
                 args.sizes.cell.gates()),
        operand_(args.sizes.cell.batch, args.sizes.cell.gates()),
        kept_(args) {}

  void last_step(int64_t, const cpu::GatesBackward<T>& gates) {
    gates_backward<Api, T>(gates);
    d_z_after_ = gates.d_z[kRecurrentShare];
  }

  void step(int64_t, const cpu::GatesBackward<T>& gates) {
    const cpu::TiledBackward step{gates, operand_.of(d_z_after_), operand_.stride(),
                                  weights_.data()};
    run<Api>(cpu::kernels().tiles.step_backward, step, weights_.panels(),
             2 * gates.rows * Cell::kGates * gates.state * cpu::kTiledBackwardStates,
             kTiledGrainFlops);
    d_z_after_ = gates.d_z[kRecurrentShare];
  }

  // Some rows' states did not come from the step before.
  void drop_rows(const bool* dropped) { d_z_after_ = kept_.without(d_z_after_, dropped); }

 private:
  TiledWeights<Api> weights_;
  TileOperand operand_;
  KeptRows<T> kept_;
  const T* d_z_after_ = nullptr;
};

}  // namespace LLTM_CELL
}  // namespace lltm
