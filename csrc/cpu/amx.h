// Tile instructions of x86 (AMX), for bfloat16.
#pragma once

#include <cstdint>

#include "types.h"

// The permission to use them is Linux's to grant; older compilers do not know them.
#if defined(__x86_64__) && defined(__linux__) && \
    (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define LLTM_AMX 1
#endif

namespace lltm::cpu::amx {

// A tile has kRows rows of 64 bytes: of kDepth bfloat16 or of kRows floats.
constexpr int64_t kRows = 16, kDepth = 32, kElements = kRows * kDepth;
// Tiles of c that one call multiplies, at most.
constexpr int kRowTiles = 2, kColumnTiles = 3;

// c = a b, or c += a b, for up to kRowTiles by kColumnTiles tiles of c. Strides count elements.
struct Product {
  const BFloat16* a;     // kRows rows of a tile
  int64_t a_row_stride;  // between the rows of a tile
  int64_t a_tile;        // between tiles below each other
  int64_t a_depth;       // between tiles beside each other
  const BFloat16* b;     // a tile: kRows pairs of depth by kRows columns by 2, dense
  int64_t b_tile;        // between tiles beside each other
  int64_t b_depth;       // between tiles below each other
  int64_t depth;         // tiles
  float* c;
  int64_t c_row_stride;
  bool add;
};

// Whether this process may use them: the processor has them and the kernel grants their state,
// which is asked for once.
bool permitted();

// Before the first product of a thread, and after its last: while tiles are configured, their
// 8 KiB are a part of what the kernel saves for the thread.
void configure();
void release();

void multiply(const Product& of, int row_tiles, int column_tiles);

}  // namespace lltm::cpu::amx
