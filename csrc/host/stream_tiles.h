// A step of a bfloat16 stream in tiles, where the processor multiplies them.
#pragma once

#include "memory.h"
#include "tiles.h"

namespace lltm {
inline namespace LLTM_CELL {

// Where the processor multiplies tiles, the weights are packed for them, in the memory that panels
// of floats have elsewhere: what is packed has one size and type on every processor. A row that is
// short of half a tile would not fit.
template <class T>
bool is_stream_tiled(const CellSizes& sizes) {
  return has_tiles<T>(sizes) && 2 * sizes.width() >= cpu::kTileDepth;
}

// [3S, S + F] -> panels of tiles, and zeros in what they leave of `elements`
template <class Api>
void pack_stream_tiles(const CellSizes& sizes, const cpu::BFloat16* weights, float* packed,
                       int64_t elements) {
  const int64_t width = sizes.width(), panels = tiled_panels(sizes.state, cpu::kTiledForwardStates);
  const int64_t columns = Cell::kGates * cpu::kTiledForwardStates;
  auto* tiles = reinterpret_cast<cpu::BFloat16*>(packed);
  run<Api>(cpu::kernels().tiles.pack_forward,
           cpu::TilePack{weights, width, sizes.state, width, tiles}, panels, columns * width,
           kGrainElements);
  const int64_t written = panels * columns * round_up(width, cpu::kTileDepth);
  clear_values(tiles + written, 2 * elements - written);
}

// The gates after one product of [h, x], by tiles.
template <class Api>
void tiled_stream_step(const CellSizes& sizes, const cpu::BFloat16* input, const float* packed,
                       const cpu::GatesForward<cpu::BFloat16>& gates) {
  const int64_t width = sizes.width();
  const Scratch<cpu::BFloat16> joined(sizes.batch * width);
  concatenate(gates.old_state[0], input, sizes, joined.data());
  const TileOperand operand(sizes.batch, width);
  const cpu::TiledForward step{gates, operand.of(joined.data()), operand.stride(),
                               reinterpret_cast<const cpu::BFloat16*>(packed)};
  run<Api>(cpu::kernels().tiles.step_forward, step,
           tiled_panels(sizes.state, cpu::kTiledForwardStates),
           2 * sizes.batch * width * Cell::kGates * cpu::kTiledForwardStates, kTiledGrainFlops);
}

}  // namespace LLTM_CELL
}  // namespace lltm
