// The dot products themselves. A file of its own, because its functions have another target than
// the kernels that call them.
#include "bf16_tiles.h"

#if defined(LLTM_BF16_TILES)
#if defined(__x86_64__)
#include <immintrin.h>
#define LLTM_DOT_TARGET __attribute__((target("avx512f,avx512bf16")))
#else
#include <arm_neon.h>
#include <sys/auxv.h>
#if defined(__clang__)
#define LLTM_DOT_TARGET __attribute__((target("bf16")))
#else
#define LLTM_DOT_TARGET __attribute__((target("arch=armv8.2-a+bf16")))
#endif
#endif

#include <algorithm>
#include <cstring>

namespace lltm::cpu::bf16 {
namespace {

// Rows whose sums, with those of kColumnTiles columns, leave registers for the operands.
constexpr int64_t kDotRows = 8;
// Whole tiles that hold them.
constexpr int64_t kBlockRows = std::max(kRows, kDotRows);

#if defined(__x86_64__)
using Sums = __m512;
using Pairs = __m512bh;
LLTM_DOT_TARGET inline Sums zeros() { return _mm512_setzero_ps(); }
LLTM_DOT_TARGET inline Sums load_sums(const float* from) { return _mm512_loadu_ps(from); }
LLTM_DOT_TARGET inline void store_sums(float* to, Sums sums) { _mm512_storeu_ps(to, sums); }
LLTM_DOT_TARGET inline Pairs load_pairs(const BFloat16* from) {
  return (Pairs)_mm512_loadu_si512(from);
}
LLTM_DOT_TARGET inline Pairs broadcast_pair(int32_t pair) { return (Pairs)_mm512_set1_epi32(pair); }
LLTM_DOT_TARGET inline Sums add_dot(Sums sums, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sums, a, b);
}
// By halves, the first of them through memory: what GCC 12 has for it is full of warnings.
LLTM_DOT_TARGET inline float sum_of_lanes(Sums sums) {
  float lanes[kRows];
  store_sums(lanes, sums);
  const __m256 eight = _mm256_loadu_ps(lanes) + _mm256_loadu_ps(lanes + 8);
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return two[0] + two[1];
}
LLTM_DOT_TARGET inline void store_narrow(BFloat16* to, Sums sums) {
  const __m256bh narrow = _mm512_cvtneps_pbh(sums);
  std::memcpy(to, &narrow, sizeof narrow);
}
#else
using Sums = float32x4_t;
using Pairs = bfloat16x8_t;
LLTM_DOT_TARGET inline Sums zeros() { return vdupq_n_f32(0); }
LLTM_DOT_TARGET inline Sums load_sums(const float* from) { return vld1q_f32(from); }
LLTM_DOT_TARGET inline void store_sums(float* to, Sums sums) { vst1q_f32(to, sums); }
LLTM_DOT_TARGET inline Pairs load_pairs(const BFloat16* from) {
  return vreinterpretq_bf16_u16(vld1q_u16(&from->bits));
}
LLTM_DOT_TARGET inline Pairs broadcast_pair(int32_t pair) {
  return vreinterpretq_bf16_s32(vdupq_n_s32(pair));
}
LLTM_DOT_TARGET inline Sums add_dot(Sums sums, Pairs a, Pairs b) { return vbfdotq_f32(sums, a, b); }
LLTM_DOT_TARGET inline float sum_of_lanes(Sums sums) { return vaddvq_f32(sums); }
LLTM_DOT_TARGET inline void store_narrow(BFloat16* to, Sums sums) {
  const bfloat16x4_t narrow = vcvt_bf16_f32(sums);
  std::memcpy(to, &narrow, sizeof narrow);
}
#endif

// The elements 2 i and 2 i + 1 of a row, for every lane.
LLTM_DOT_TARGET inline Pairs broadcast_pair(const BFloat16* row, int64_t i) {
  int32_t pair;
  std::memcpy(&pair, row + 2 * i, sizeof pair);
  return broadcast_pair(pair);
}

template <int Rows, int Columns>
using AllSums = Sums[Rows][Columns];

template <int Rows, int Columns>
LLTM_DOT_TARGET inline void add_pair(AllSums<Rows, Columns>& sums, const Product& of,
                                     const BFloat16* a, const BFloat16* b, int64_t pair) {
  Pairs columns[Columns];
#pragma GCC unroll 3
  for (int column = 0; column < Columns; ++column) {
    columns[column] = load_pairs(b + column * of.b_tile + pair * kDepth);
  }
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
    const BFloat16* line = a + row / kRows * of.a_tile + row % kRows * of.a_row_stride;
    const Pairs x = broadcast_pair(line, pair);
#pragma GCC unroll 3
    for (int column = 0; column < Columns; ++column) {
      sums[row][column] = add_dot(sums[row][column], columns[column], x);
    }
  }
}

template <int Rows, int Columns>
LLTM_DOT_TARGET void multiply_rows(const Product& of, const BFloat16* a, float* c) {
  // With few sums the loop costs more than a pair; with many the code would not fit its cache.
  constexpr int64_t kUnrolled = Rows * Columns > 4 ? 1 : kRows;
  AllSums<Rows, Columns> sums;
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (int column = 0; column < Columns; ++column) {
      sums[row][column] = of.add ? load_sums(c + row * of.c_row_stride + column * kRows) : zeros();
    }
  }
  const BFloat16* b = of.b;
  for (int64_t k = 0; k < of.depth; ++k, a += of.a_depth, b += of.b_depth) {
    if (of.fetches_a) {
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row) {
        __builtin_prefetch(a + (row + Rows) * of.a_row_stride);
      }
    }
    const int64_t pairs = kUnrolled > 1 || k + 1 < of.depth ? kRows : of.last_pairs;
    for (int64_t first = 0; first < pairs; first += kUnrolled) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kUnrolled; ++i) add_pair<Rows, Columns>(sums, of, a, b, first + i);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 3
    for (int column = 0; column < Columns; ++column) {
      store_sums(c + row * of.c_row_stride + column * kRows, sums[row][column]);
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

// Rows in pieces of nearly the same size, within whole tiles each.
template <int Columns>
void multiply_columns(const Product& of) {
  for (int64_t first = 0; first < of.rows; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, of.rows - first);
    const int64_t pieces = (rows + kDotRows - 1) / kDotRows;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t from = rows * piece / pieces, count = rows * (piece + 1) / pieces - from;
      OfRows<Columns>::kProducts[count - 1](
          of, of.a + first / kRows * of.a_tile + from * of.a_row_stride,
          of.c + (first + from) * of.c_row_stride);
    }
  }
}

// Products along rows: both operands are read where they are, a vector of pairs of each row.

template <int Count>
using Lines = const BFloat16* [Count];

template <int Rows, int Columns>
LLTM_DOT_TARGET inline void add_vectors(AllSums<Rows, Columns>& sums, const Lines<Rows>& x,
                                        const Lines<Columns>& w, int64_t k) {
  Pairs rows[Rows];
#pragma GCC unroll 4
  for (int row = 0; row < Rows; ++row) rows[row] = load_pairs(x[row] + k);
#pragma GCC unroll 8
  for (int column = 0; column < Columns; ++column) {
    const Pairs pairs = load_pairs(w[column] + k);
#pragma GCC unroll 4
    for (int row = 0; row < Rows; ++row) {
      sums[row][column] = add_dot(sums[row][column], pairs, rows[row]);
    }
  }
}

// The last elements of some lines, beside zeros.
template <int Count>
struct Rest {
  BFloat16 values[Count][kDepth] = {};
  Lines<Count> lines;

  Rest(const Lines<Count>& from, int64_t k, int64_t elements) {
    for (int line = 0; line < Count; ++line) {
      std::memcpy(values[line], from[line] + k, elements * sizeof(BFloat16));
      lines[line] = values[line];
    }
  }
};

template <int Rows, int Columns>
LLTM_DOT_TARGET void multiply_vectors(const RowProduct& of, int64_t row, int64_t column) {
  Lines<Rows> x;
  Lines<Columns> w;  // the last one again for those that there are not
#pragma GCC unroll 8
  for (int j = 0; j < Columns; ++j) {
    w[j] = of.w + std::min(column + j, of.columns - 1) * of.w_stride;
  }
  AllSums<Rows, Columns> sums;
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
    x[i] = of.x + (row + i) * of.x_stride;
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) sums[i][j] = zeros();
  }
  int64_t k = 0;
  for (; k + kDepth <= of.depth; k += kDepth) {
    add_vectors<Rows, Columns>(sums, x, w, k);
  }
  if (k < of.depth) {
    const Rest<Rows> rest_x(x, k, of.depth - k);
    const Rest<Columns> rest_w(w, k, of.depth - k);
    add_vectors<Rows, Columns>(sums, rest_x.lines, rest_w.lines, 0);
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
    float* c = of.c + (row + i) * of.c_row_stride + column;
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) {
      if (column + j < of.columns) c[j] = sum_of_lanes(sums[i][j]);
    }
  }
}

template <int Rows>
void multiply_along_rows(const RowProduct& of, int64_t row) {
  constexpr int columns = Rows > 2 ? 4 : 8;
  for (int64_t column = 0; column < of.columns; column += columns) {
    multiply_vectors<Rows, columns>(of, row, column);
  }
}

LLTM_DOT_TARGET void narrow_vectors(const float* from, BFloat16* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kRows) store_narrow(to + i, load_sums(from + i));
}

}  // namespace

void DotProducts::narrow(const float* from, BFloat16* to, int64_t count) {
  const int64_t whole = count / kRows * kRows, rest = count - whole;
  narrow_vectors(from, to, whole);
  if (rest == 0) return;
  float last[kRows] = {};
  BFloat16 narrow[kRows];
  std::memcpy(last, from + whole, rest * sizeof(float));
  narrow_vectors(last, narrow, kRows);
  std::memcpy(to + whole, narrow, rest * sizeof(BFloat16));
}

void DotProducts::multiply_along(const RowProduct& of) {
  int64_t row = 0;
  for (; row + 4 <= of.rows; row += 4) multiply_along_rows<4>(of, row);
  for (; row + 2 <= of.rows; row += 2) multiply_along_rows<2>(of, row);
  for (; row < of.rows; ++row) multiply_along_rows<1>(of, row);
}

#if defined(__x86_64__)
bool DotProducts::permitted() { return __builtin_cpu_supports("avx512bf16"); }
#else
bool DotProducts::permitted() {
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16 of asm/hwcap.h
  return getauxval(AT_HWCAP2) & kBf16;
}
#endif

void DotProducts::multiply(const Product& of) {
  static constexpr void (*kProducts[kColumnTiles])(const Product&) = {
      multiply_columns<1>, multiply_columns<2>, multiply_columns<3>};
  kProducts[of.column_tiles - 1](of);
}

}  // namespace lltm::cpu::bf16
#endif
