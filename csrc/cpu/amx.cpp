// The tile products themselves. A file of its own, because its functions have another target than
// the kernels that call them.
#include "bf16_tiles.h"

#if defined(LLTM_BF16_TILES) && defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LLTM_TILE_TARGET __attribute__((target("amx-tile,amx-bf16")))
// What the compilers know of these instructions does not say that they read memory.
#define LLTM_MEMORY_IS_READ() __asm__ volatile("" ::: "memory")

namespace lltm::cpu::bf16 {
namespace {

struct alignas(64) Configuration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

bool has_instructions() {
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  return (d & kBf16) && (d & kTile);
}

bool request() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // of asm/prctl.h, since Linux 5.16
  return has_instructions() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Sums are in the tiles 3 * row + column, a in 6, b in 7: the processor renames tiles, so that a
// load need not wait for the product before it.
template <int Rows, int Columns>
LLTM_TILE_TARGET void multiply_tiles(const Product& of) {
  const int64_t sums = of.c_row_stride * static_cast<int64_t>(sizeof(float));
  const int64_t a_row = of.a_row_stride * static_cast<int64_t>(sizeof(BFloat16));
  float* below = of.c + kRows * of.c_row_stride;
  LLTM_MEMORY_IS_READ();
#define LLTM_FOR_EACH_SUM(ACTION)                                  \
  ACTION(0, of.c);                                                 \
  if constexpr (Columns > 1) ACTION(1, of.c + kRows);              \
  if constexpr (Columns > 2) ACTION(2, of.c + 2 * kRows);          \
  if constexpr (Rows > 1) ACTION(3, below);                        \
  if constexpr (Rows > 1 && Columns > 1) ACTION(4, below + kRows); \
  if constexpr (Rows > 1 && Columns > 2) ACTION(5, below + 2 * kRows);
#define LLTM_LOAD(tile, from) _tile_loadd(tile, from, sums)
#define LLTM_CLEAR(tile, from) _tile_zero(tile)
#define LLTM_STORE(tile, to) _tile_stored(tile, to, sums)
  if (of.add) {
    LLTM_FOR_EACH_SUM(LLTM_LOAD)
  } else {
    LLTM_FOR_EACH_SUM(LLTM_CLEAR)
  }
  const BFloat16* a = of.a;
  const BFloat16* b = of.b;
  for (int64_t k = 0; k < of.depth; ++k, a += of.a_depth, b += of.b_depth) {
#define LLTM_COLUMN(column, first, second)    \
  _tile_loadd(7, b + column * of.b_tile, 64); \
  _tile_loadd(6, a, a_row);                   \
  _tile_dpbf16ps(first, 6, 7);                \
  if constexpr (Rows > 1) {                   \
    _tile_loadd(6, a + of.a_tile, a_row);     \
    _tile_dpbf16ps(second, 6, 7);             \
  }
    LLTM_COLUMN(0, 0, 3)
    if constexpr (Columns > 1) {
      LLTM_COLUMN(1, 1, 4)
    }
    if constexpr (Columns > 2) {
      LLTM_COLUMN(2, 2, 5)
    }
#undef LLTM_COLUMN
  }
  LLTM_FOR_EACH_SUM(LLTM_STORE)
  LLTM_MEMORY_IS_READ();
#undef LLTM_STORE
#undef LLTM_CLEAR
#undef LLTM_LOAD
#undef LLTM_FOR_EACH_SUM
}

}  // namespace

bool TileInstructions::permitted() {
  static const bool granted = request();
  return granted;
}

LLTM_TILE_TARGET void TileInstructions::begin() {
  Configuration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = 64;
    configuration.rows[tile] = kRows;
  }
  __asm__ volatile("" ::"r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
}

LLTM_TILE_TARGET void TileInstructions::end() { _tile_release(); }

void TileInstructions::multiply(const Product& of) {
  static constexpr void (*kProducts[2][kColumnTiles])(const Product&) = {
      {multiply_tiles<1, 1>, multiply_tiles<1, 2>, multiply_tiles<1, 3>},
      {multiply_tiles<2, 1>, multiply_tiles<2, 2>, multiply_tiles<2, 3>}};
  kProducts[of.rows > kRows][of.column_tiles - 1](of);
}

}  // namespace lltm::cpu::bf16
#endif
