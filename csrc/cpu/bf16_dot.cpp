// The dot products themselves. A file of its own, because its functions have another target than
// the kernels that call them.
#include "bf16_tiles.h"

#if defined(LLTM_BF16_TILES)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define LLTM_DOT_TARGET __attribute__((target("avx512f,avx512bf16")))

namespace lltm::cpu::bf16 {
namespace {

// Rows whose sums, with those of kColumnTiles columns, leave registers for the operands.
constexpr int64_t kDotRows = 8;

// The elements 2 i and 2 i + 1 of a row, for every lane.
LLTM_DOT_TARGET inline __m512bh broadcast_pair(const BFloat16* row, int64_t i) {
  int32_t pair;
  std::memcpy(&pair, row + 2 * i, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

template <int Rows, int Columns>
LLTM_DOT_TARGET void multiply_rows(const Product& of, const BFloat16* a, float* c) {
  __m512 sums[Rows][Columns];
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (int column = 0; column < Columns; ++column) {
      sums[row][column] = of.add ? _mm512_loadu_ps(c + row * of.c_row_stride + column * kRows)
                                 : _mm512_setzero_ps();
    }
  }
  const BFloat16* b = of.b;
  for (int64_t k = 0; k < of.depth; ++k, a += of.a_depth, b += of.b_depth) {
    for (int64_t pair = 0; pair < kRows; ++pair) {
      __m512bh columns[Columns];
#pragma GCC unroll 3
      for (int column = 0; column < Columns; ++column) {
        columns[column] = (__m512bh)_mm512_loadu_si512(b + column * of.b_tile + pair * kDepth);
      }
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row) {
        const __m512bh x = broadcast_pair(a + row * of.a_row_stride, pair);
#pragma GCC unroll 3
        for (int column = 0; column < Columns; ++column) {
          sums[row][column] = _mm512_dpbf16_ps(sums[row][column], columns[column], x);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (int column = 0; column < Columns; ++column) {
      _mm512_storeu_ps(c + row * of.c_row_stride + column * kRows, sums[row][column]);
    }
  }
}

template <int Columns>
struct OfRows {
  static constexpr void (*kProducts[kDotRows])(const Product&, const BFloat16* a, float* c) = {
      multiply_rows<1, Columns>, multiply_rows<2, Columns>, multiply_rows<3, Columns>,
      multiply_rows<4, Columns>, multiply_rows<5, Columns>, multiply_rows<6, Columns>,
      multiply_rows<7, Columns>, multiply_rows<8, Columns>};
};

// Rows in pieces of nearly the same size, within a tile each.
template <int Columns>
void multiply_columns(const Product& of) {
  for (int64_t first = 0; first < of.rows; first += kRows) {
    const int64_t rows = std::min(kRows, of.rows - first);
    const int64_t pieces = (rows + kDotRows - 1) / kDotRows;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t from = rows * piece / pieces, count = rows * (piece + 1) / pieces - from;
      OfRows<Columns>::kProducts[count - 1](
          of, of.a + first / kRows * of.a_tile + from * of.a_row_stride,
          of.c + (first + from) * of.c_row_stride);
    }
  }
}

}  // namespace

bool DotProducts::permitted() { return __builtin_cpu_supports("avx512bf16"); }

void DotProducts::multiply(const Product& of) {
  static constexpr void (*kProducts[kColumnTiles])(const Product&) = {
      multiply_columns<1>, multiply_columns<2>, multiply_columns<3>};
  kProducts[of.column_tiles - 1](of);
}

}  // namespace lltm::cpu::bf16
#endif
