// The register tile that every product here is made of. Included like simd.h.
#pragma once

// Rows of a tile: as many as leave registers for the vectors of b and one broadcast.
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;

// Operands of a tile: sums [rows, Vectors * width] = a [rows, depth] b [depth, Vectors * width].
template <class T>
struct TileOperands {
  const T* a;
  int64_t a_row_stride;
  int64_t a_column_stride;
  const T* b;
  int64_t b_row_stride;
  int64_t depth;
};

// One function per number of rows and of vectors, never inlined: the epilogues, which are many,
// stay out of them. a is broadcast, b is read in vectors; with `add`, the product is added as one
// term to what sums has come with.
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void tile_product(const TileOperands<T>& of, T* sums, bool add) {
  using V = typename VectorOf<T>::type;
  constexpr int width = VectorOf<T>::width;
  V sum[Rows][Vectors] = {};
  const T* a = of.a;
  const T* b = of.b;
  for (int64_t k = 0; k < of.depth; ++k, a += of.a_column_stride, b += of.b_row_stride) {
    V vectors[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) vectors[v] = load(b + v * width);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const V x = broadcast(a[row * of.a_row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[row][v] += x * vectors[v];
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      T* to = sums + (row * Vectors + v) * width;
      store(to, add ? load(to) + sum[row][v] : sum[row][v]);
    }
  }
}

template <class T>
using TileProduct = void (*)(const TileOperands<T>&, T* sums, bool add);

constexpr int possible(int rows) { return rows < kTileRows ? rows : kTileRows; }

template <class T, int Vectors>
struct TileTable {
  static constexpr TileProduct<T> kOfRows[] = {
      tile_product<T, possible(1), Vectors>, tile_product<T, possible(2), Vectors>,
      tile_product<T, possible(3), Vectors>, tile_product<T, possible(4), Vectors>,
      tile_product<T, possible(5), Vectors>, tile_product<T, possible(6), Vectors>,
      tile_product<T, possible(7), Vectors>, tile_product<T, possible(8), Vectors>};
};

// The function for that many rows, 1 to kTileRows.
template <class T, int Vectors>
LLTM_INLINE TileProduct<T> tile_of(int64_t rows) {
  return TileTable<T, Vectors>::kOfRows[rows - 1];
}

template <class T, int Vectors>
struct alignas(kVectorBytes) TileSums {
  T at[kTileRows][Vectors][VectorOf<T>::width];
};

LLTM_INLINE int64_t at_most(int64_t most, int64_t x) { return x < most ? x : most; }

// The product as one term for each `block` of the depth, for errors grow with the terms of a sum.
template <class T>
LLTM_INLINE void multiply_in_blocks(TileProduct<T> tile, TileOperands<T> operands, int64_t block,
                                    T* sums, bool add = false) {
  const int64_t depth = operands.depth;
  for (int64_t k = 0; k == 0 || k < depth; k += block) {
    operands.depth = at_most(block, depth - k);
    tile(operands, sums, add || k > 0);
    operands.a += operands.depth * operands.a_column_stride;
    operands.b += operands.depth * operands.b_row_stride;
  }
}
