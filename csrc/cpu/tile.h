// The register tile that every product here is made of. Included like simd.h.
#pragma once

// Rows of a tile of three vectors: as many as leave registers for the vectors of b and one
// broadcast.
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;

// The most rows of a tile of a panel of so many vectors. Where all of a panel's tiles have one or
// two and there are 16 registers, six rows hide the latency that four wait for.
template <int Vectors>
constexpr int kMostRows = kVectorBytes < 64 && (Vectors <= 2 || Vectors == 4) ? 6 : kTileRows;

// Rows of the next tile. The last two share what is left, for fewer rows take no less time.
template <int Vectors>
LLTM_INLINE int64_t next_rows(int64_t left) {
  constexpr int64_t most = kMostRows<Vectors>;
  return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most;
}

// Terms of a sum that are summed before their sum is added as one term: errors grow with the terms
// of a block and with the blocks. Without a multiply-add each product is rounded as well, and the
// blocks are shorter for it.
constexpr int64_t kSumBlock = kHasFma ? 32 : 16;

// The same of a tile that is given no block of its own: a step's, and a product's that is read in
// place. In float64 MKL is more right than blocks of 32, by AVX2 and by AVX-512: the outputs of an
// RNN of 44 terms were 1.02 times as wrong as eager's on an Intel Cascade Lake.
template <class T>
constexpr int64_t kTileSumBlock = sizeof(T) > 4 ? 16 : kSumBlock;

// Asks for the lines of so many elements in a row.
template <int64_t Count, class T>
LLTM_INLINE void fetch(const T* from) {
  constexpr int64_t line = 64 / sizeof(T);
#pragma GCC unroll 4
  for (int64_t i = 0; i < Count; i += line) __builtin_prefetch(from + i);
}

// Operands of a tile: sums [rows, Vectors * width] = a [rows, depth] b [depth, Vectors * width].
template <class T>
struct TileOperands {
  const T* a;
  int64_t a_row_stride;
  int64_t a_column_stride;
  const T* b;
  int64_t b_row_stride;
  int64_t depth;
  int64_t block = kTileSumBlock<T>;
};

// Keeps the compiler from seeing where a value comes from, so that it stays in its own register.
template <class P>
LLTM_INLINE P opaque(P pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

// One pointer to every third row: the two rows after it are one and two strides away, which an
// address has room for. With an offset for each row the registers did not suffice.
template <class T, int Rows>
struct RowPointers {
  static constexpr int kPointers = (Rows + 2) / 3;
  const T* at[kPointers];

  LLTM_INLINE RowPointers(const T* a, int64_t stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) at[i] = opaque(a + 3 * i * stride);
  }
  LLTM_INLINE T value(int row, int64_t stride) const { return at[row / 3][row % 3 * stride]; }
  LLTM_INLINE void advance(int64_t stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) at[i] += stride;
  }
};

// Rows of b that are asked for before they are multiplied, by whole tiles. A packed panel of
// AVX-512's vectors outgrows a first-level cache, and what an Intel Cascade Lake fetches by itself
// comes late. An AMD Zen with AVX2 won nothing by it. From the second line of each on: the first is
// at hand where the panel before it, or the row before it, ends; and a row that does not begin with
// a line ends in one more.
constexpr int64_t kFetchedRows = kVectorBytes == 64 ? 8 : 0;

// A sum of no terms.
template <int Rows, int Vectors, class T>
LLTM_INLINE void no_product(T* sums, int64_t row_stride, bool add) {
  if (add) return;
  for (int row = 0; row < Rows; ++row) {
    for (int64_t i = 0; i < Vectors * VectorOf<T>::width; ++i) sums[row * row_stride + i] = T(0);
  }
}

// The tile's sums: a is broadcast, b is read in vectors; with `add`, the product is added to what
// sums has come with. A block of the depth is summed in registers and added in memory, which the
// block after it need not wait for; its first products are the sums, so that no register has to be
// cleared for them.
template <int Rows, int Vectors, class T>
LLTM_INLINE void sum_tile(const TileOperands<T>& of, T* sums, int64_t sums_stride, bool add) {
  using V = typename VectorOf<T>::type;
  constexpr int width = VectorOf<T>::width;
  constexpr bool kFetches = kFetchedRows > 0 && Rows == kTileRows;
  if (of.depth == 0) return no_product<Rows, Vectors>(sums, sums_stride, add);
  RowPointers<T, Rows> a(of.a, of.a_row_stride);
  const T* b = of.b;
  const int64_t row_stride = of.a_row_stride, a_step = of.a_column_stride, b_step = of.b_row_stride;
  int64_t left = of.depth;
  const int64_t block = of.block;
  do {
    V sum[Rows][Vectors];
    int64_t terms = left < block ? left : block;
    left -= terms;
    const auto add_term = [&](auto first) __attribute__((always_inline)) {
      if constexpr (kFetches) fetch<Vectors * width>(b + kFetchedRows * b_step + width);
      V vectors[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) vectors[v] = load(b + v * width);
#pragma GCC unroll 16
      for (int row = 0; row < Rows; ++row) {
        const V x = broadcast(a.value(row, row_stride));
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
          if constexpr (first) {
            sum[row][v] = x * vectors[v];
          } else {
            sum[row][v] += x * vectors[v];
          }
        }
      }
      a.advance(a_step);
      b += b_step;
    };
    add_term(std::true_type{});
    while (--terms > 0) add_term(std::false_type{});
    T* to = sums;
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row, to += sums_stride) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        store(to + v * width, add ? load(to + v * width) + sum[row][v] : sum[row][v]);
      }
    }
    add = true;
  } while (left > 0);
}

// One function per number of rows and of vectors, never inlined: the epilogues, which are many,
// stay out of them. The rows of sums are of Stride vectors.
template <class T, int Rows, int Vectors, int Stride = Vectors>
__attribute__((noinline)) void tile_product(const TileOperands<T>& of, T* sums, bool add) {
  sum_tile<Rows, Vectors>(of, sums, Stride * VectorOf<T>::width, add);
}

// A whole tile, to rows that are not the tile's own.
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void tile_product_to(const TileOperands<T>& of, T* c, int64_t c_stride,
                                               bool add) {
  sum_tile<Rows, Vectors>(of, c, c_stride, add);
}

// Calls `body` with how many of the vectors that are left to take next, as a constant: as many as a
// tile is fastest with, and never one alone that could go with others.
template <class Body>
LLTM_INLINE void with_next_vectors(int64_t left, const Body& body) {
  if (left >= 3 && left != 4) return body(std::integral_constant<int, 3>());
  if (left >= 2) return body(std::integral_constant<int, 2>());
  body(std::integral_constant<int, 1>());
}

template <class T>
using TileProduct = void (*)(const TileOperands<T>&, T* sums, bool add);

constexpr int possible(int rows, int most) { return rows < most ? rows : most; }

template <class T, int Vectors, int Stride>
struct TileTable {
  static constexpr int kMost = kMostRows<Stride>;
  static constexpr TileProduct<T> kOfRows[] = {
      tile_product<T, possible(1, kMost), Vectors, Stride>,
      tile_product<T, possible(2, kMost), Vectors, Stride>,
      tile_product<T, possible(3, kMost), Vectors, Stride>,
      tile_product<T, possible(4, kMost), Vectors, Stride>,
      tile_product<T, possible(5, kMost), Vectors, Stride>,
      tile_product<T, possible(6, kMost), Vectors, Stride>,
      tile_product<T, possible(7, kMost), Vectors, Stride>,
      tile_product<T, possible(8, kMost), Vectors, Stride>};
};

// The function for that many rows, 1 to kMostRows.
template <class T, int Vectors, int Stride = Vectors>
LLTM_INLINE TileProduct<T> tile_of(int64_t rows) {
  return TileTable<T, Vectors, Stride>::kOfRows[rows - 1];
}

template <class T, int Vectors>
struct alignas(kVectorBytes) TileSums {
  T at[kMostRows<Vectors>][Vectors][VectorOf<T>::width];
};

// A single row has too few sums in flight for the usual tile: it takes as many vectors as hide the
// latency.
constexpr int kSingleRowVectors = 8;

// The sums of a panel of any number of vectors, as many at a time as leave registers for the
// operands: two or three, but for a single row.
template <int First = 0, class T, int Vectors>
LLTM_INLINE void multiply_panel(TileOperands<T> of, int64_t rows, TileSums<T, Vectors>& sums,
                                bool add) {
  constexpr int left = Vectors - First, part = left == 4 ? 2 : left < 3 ? left : 3;
  T* to = sums.at[0][First];
  if (First == 0 && rows == 1 && Vectors <= kSingleRowVectors) {
    return tile_product<T, 1, Vectors>(of, to, add);
  }
  tile_of<T, part, Vectors>(rows)(of, to, add);
  if constexpr (left > part) {
    of.b += part * VectorOf<T>::width;
    multiply_panel<First + part>(of, rows, sums, add);
  }
}

LLTM_INLINE int64_t at_most(int64_t most, int64_t x) { return x < most ? x : most; }
