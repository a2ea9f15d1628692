// Steps of few rows, whose weights are read where they are: dot products along their rows.
#pragma once

#include <cstdint>

#include "../cell.h"
#include "../contract.h"
#include "../cpu/kernels.h"
#include "parallel.h"
#include "passes.h"
#include "tiles.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class T>
bool is_few(const CellSizes& sizes) {
  return sizes.batch <= cpu::kernels().of<T>().max_few_rows;
}

template <class Api, class T, class X>
void run_direct(void (*kernel)(const cpu::CellForward<T, X>&, int64_t, int64_t),
                const cpu::CellForward<T, X>& args) {
  const auto& kernels = cpu::kernels().of<T>();
  run<Api>(
      kernel, args, kernels.panels(args.gates.state, 1),
      2 * args.gates.rows * (args.product.depth + args.input.depth) * Cell::kGates * kernels.width,
      kGrainFlops);
}

// Rows of all steps up to which packing the weights takes longer than it saves.
constexpr int64_t kRowsInPlace = 8;

// Whether a sequence is so short that its steps read the weights where they are.
template <class T>
bool reads_weights_in_place(const SequenceSizes& sizes) {
  const CellSizes& cell = sizes.cell;
  return cell.heads == 1 && is_few<T>(cell) && !has_tiles<T>(cell) &&
         sizes.steps * cell.batch <= kRowsInPlace;
}

// A sequence's forward steps, which multiply their inputs, too.
template <class Api, class T>
class InPlaceForwardProduct {
 public:
  explicit InPlaceForwardProduct(const SequenceForward<T>& args)
      : sizes_(args.sizes.cell), input_(args.input), weights_(args.weights), h_(args.first[0]) {}

  // What step t reads instead of what the step before it wrote.
  void replace_h(int64_t, const T* h) { h_ = h; }

  void step(int64_t t, const cpu::GatesForward<T>& gates) {
    const int64_t state = sizes_.state, features = sizes_.features;
    const T* input = input_ + t * sizes_.batch * features;
    run_direct<Api, T, T>(
        cpu::kernels().of<T>().cell_few,
        {gates,
         {h_, state, weights_.state, weights_.state_stride, state, state},
         {input, features, weights_.input, weights_.input_stride, state, features}});
    h_ = gates.new_state[0];
  }

 private:
  CellSizes sizes_;
  const T* input_;
  SequenceWeights<T> weights_;
  const T* h_;  // before the next step
};

}  // namespace LLTM_CELL
}  // namespace lltm
