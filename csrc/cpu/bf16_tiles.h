// Products of whole tiles of bfloat16, by what processors have for them: tile instructions (AMX) or
// dot products of pairs (AVX512-BF16, NEON's BFDOT).
#pragma once

#include <cstdint>

#include "types.h"

// The permission to use tiles, and what an Arm processor has, is Linux's to tell; older compilers
// do not know the instructions.
#if defined(__linux__) && defined(__x86_64__) && \
    (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define LLTM_BF16_TILES 1
#elif defined(__linux__) && defined(__aarch64__) && \
    (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define LLTM_BF16_TILES 1
#endif

namespace lltm::cpu::bf16 {

// A tile has kRows rows of a vector's bytes: of kDepth bfloat16 or of kRows floats.
#if defined(__aarch64__)
constexpr int64_t kRows = 4;
#else
constexpr int64_t kRows = 16;
#endif
constexpr int64_t kDepth = 2 * kRows, kElements = kRows * kDepth;
// Rows, and tiles of columns, that one call multiplies, at most.
constexpr int64_t kMaxRows = 2 * kRows;
constexpr int kColumnTiles = 3;

// c = a b, or c += a b. Strides count elements.
struct Product {
  int64_t rows;          // 1 to kMaxRows of c
  int column_tiles;      // 1 to kColumnTiles
  const BFloat16* a;     // tiles of kRows rows
  int64_t a_row_stride;  // between the rows of a tile
  int64_t a_tile;        // between tiles below each other
  int64_t a_depth;       // between tiles beside each other
  const BFloat16* b;     // a tile: kRows pairs of depth by kRows columns by 2, dense
  int64_t b_tile;        // between tiles beside each other
  int64_t b_depth;       // between tiles below each other
  int64_t depth;         // tiles
  int64_t last_pairs;    // of the last tile: what follows them is zeros
  float* c;
  int64_t c_row_stride;
  bool add;
  // Whether the rows of a below these are read next, and lie in no cache yet; in one piece of
  // memory, like the tiles of a matrix that is read where it is.
  bool fetches_a = false;
};

// c[row][column] = the dot product of a row of x and a row of w, of any depth.
struct RowProduct {
  int64_t rows;     // of x
  int64_t columns;  // rows of w
  int64_t depth;
  const BFloat16* x;
  int64_t x_stride;
  const BFloat16* w;
  int64_t w_stride;
  float* c;
  int64_t c_row_stride;
};

#if defined(__x86_64__)
// By tile instructions, which multiply whole tiles: a and c have rows up to a multiple of kRows.
struct TileInstructions {
  static constexpr int64_t kRowMultiple = kRows;
  static constexpr int64_t kDepthBlock = 512;  // of a product's depth packed at a time
  static constexpr bool kRowsInPlace = false;  // in products of any size: not measured
  // The least depth of a part of a step's product, between which its sums pass through memory: by
  // the instructions' published times a twentieth of what the part takes.
  static constexpr int64_t kPartDepth = 1024;
  // Whether this process may use them: the processor has them and the kernel grants their state,
  // which is requested once.
  static bool permitted();
  // Before the first product of a thread, and after its last: while tiles are configured, their
  // 8 KiB are a part of what the kernel saves for the thread.
  static void begin();
  static void end();
  static void multiply(const Product& of);
};
#endif

// By dot products of pairs, of the rows there are.
struct DotProducts {
  static constexpr int64_t kRowMultiple = 1;
  // Half of what tiles have: 2 to 4 % less time on an AMD Zen 4, whose first-level cache is 32 KiB.
  static constexpr int64_t kDepthBlock = 256;
  static constexpr bool kRowsInPlace = true;
  static constexpr int64_t kPartDepth = 96;  // as measured on an AMD Zen 5
  static bool permitted();
  static void begin() {}
  static void end() {}
  static void multiply(const Product& of);
  static void multiply_along(const RowProduct& of);
  // Rounds to nearest even, as the products do: what is subnormal may become zero.
  static void narrow(const float* from, BFloat16* to, int64_t count);
};

}  // namespace lltm::cpu::bf16
