// A general product, blocked for the caches: both operands packed a block at a time, the rest is
// the register tile. Included like simd.h.
#pragma once

// to[k][lane] = from(k, lane) for the lanes there are, of Room, else zero.
template <int64_t Room, class T>
void pack_panel(const T* from, int64_t row_stride, int64_t column_stride, int64_t depth,
                int64_t lanes, T* to) {
  if (column_stride == 1 && lanes == Room) {
    for (int64_t k = 0; k < depth; ++k) {
      __builtin_memcpy(to + k * Room, from + k * row_stride, Room * sizeof(T));
    }
    return;
  }
  if (row_stride == 1) {
    transpose_into(from, column_stride, lanes, depth, to, Room, Room);
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t lane = 0; lane < Room; ++lane) {
      to[k * Room + lane] = lane < lanes ? from[k * row_stride + lane * column_stride] : T(0);
    }
  }
}

// Whether the next panel of b is asked for while a panel is multiplied. Its rows are in a page
// each, so that nothing else asks for them early. Not measured with AVX-512, whose panels of 48 KB
// would take the place of the packed one in a first-level cache.
constexpr bool kFetchesNextPanel = kVectorBytes < 64;

// One panel of columns against one block of rows, for one block of the depth.
template <class T>
struct Block {
  const MatrixProduct<T>& args;
  int64_t row, rows;        // of c
  int64_t depth_at, depth;  // of the product
  const T* packed_a;        // [tile][depth][kTileRows], or null: a is read where it is

  void run(int64_t panel) const {
    const UnevenPanels panels(args.columns, kWidth<T>);
    const int64_t column = panels.first(panel) * kWidth<T>;
    switch (panels.size(panel)) {
      case 3:
        return run_panel<3>(column);
      case 2:
        return run_panel<2>(column);
      default:
        return run_panel<1>(column);
    }
  }

  template <int Vectors>
  void run_panel(int64_t column) const {
    constexpr int64_t panel = Vectors * kWidth<T>;
    alignas(kVectorBytes) T packed_b[kDepthBlock * panel];
    const int64_t columns = at_most(panel, args.columns - column);
    const T* b = args.b + depth_at * args.b_row_stride + column * args.b_column_stride;
    pack_panel<panel>(b, args.b_row_stride, args.b_column_stride, depth, columns, packed_b);
    const bool fetches = kFetchesNextPanel && args.b_column_stride == 1;
    const int64_t fetched = fetches && column + panel < args.columns ? depth : 0;
    TileSums<T, Vectors> sums;
    TileOperands<T> operands{nullptr, 1, kTileRows, packed_b, panel, depth, args.sum_block};
    if (!packed_a) operands.a_row_stride = args.a_row_stride;
    if (!packed_a) operands.a_column_stride = args.a_column_stride;
    for (int64_t i = 0, count, k = 0; i < rows; i += count) {
      count = packed_a ? at_most(kTileRows, rows - i) : next_rows<Vectors>(rows - i);
      T* to = args.c + (row + i) * args.c_row_stride + column;
      operands.a = packed_a
                       ? packed_a + i * depth
                       : args.a + (row + i) * args.a_row_stride + depth_at * args.a_column_stride;
      // While the tile is multiplied: the lines of c, and those of its share of the next panel.
      for (int64_t j = 0; j < count; ++j) fetch<panel>(to + j * args.c_row_stride);
      for (const int64_t end = (i + count) * fetched / rows; k < end; ++k) {
        fetch<panel>(b + k * args.b_row_stride + panel);
      }
      tile_of<T, Vectors>(count)(operands, &sums.at[0][0][0], false);
      if (depth_at > 0) {
        write<true>(sums, to, count, columns);
      } else {
        write<false>(sums, to, count, columns);
      }
    }
  }

  // The sums into c, or onto it.
  template <bool kAdd, int Vectors>
  LLTM_INLINE void write(const TileSums<T, Vectors>& sums, T* c, int64_t count,
                         int64_t columns) const {
    constexpr int64_t width = kWidth<T>;
    if (columns == Vectors * width) {
      for (int64_t i = 0; i < count; ++i, c += args.c_row_stride) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) write_vector<kAdd>(sums.at[i][v], c + v * width, Full{});
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i, c += args.c_row_stride) {
      int64_t v = 0;
      for (; (v + 1) * width <= columns; ++v) {
        write_vector<kAdd>(sums.at[i][v], c + v * width, Full{});
      }
      if (const int64_t rest = columns - v * width) {
        write_vector<kAdd>(sums.at[i][v], c + v * width, Tail{rest});
      }
    }
  }

  template <bool kAdd, class Lanes>
  LLTM_INLINE void write_vector(const T* sums, T* c, Lanes lanes) const {
    vector_t<T> sum = load(sums);
    if constexpr (kAdd) sum += lanes.load_from(c);
    lanes.store_to(c, sum);
  }
};

// Rows of a transposed a, packed for the tiles: [tile][depth][kTileRows]. A strip of the depth at a
// time, so that each line and page of a is read while it is at hand.
template <class T>
void pack_rows(const MatrixProduct<T>& args, int64_t row, int64_t rows, int64_t depth_at,
               int64_t depth, T* to) {
  constexpr int64_t strip = 16;
  for (int64_t k = 0; k < depth; k += strip) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      pack_panel<kTileRows>(
          args.a + (row + i) * args.a_row_stride + (depth_at + k) * args.a_column_stride,
          args.a_column_stride, args.a_row_stride, at_most(strip, depth - k),
          at_most(kTileRows, rows - i), to + i * depth + k * kTileRows);
    }
  }
}

// The panels [first, last) of columns against one block of rows.
template <class T>
void multiply_panels(const MatrixProduct<T>& args, int64_t row, int64_t rows, int64_t first,
                     int64_t last) {
  const bool transposed = args.a_row_stride == 1;
  alignas(kVectorBytes) T packed_a[kTransposedRows<T> * kDepthBlock];
  // At least once: a product of depth 0 is all zeros.
  for (int64_t k = 0; k == 0 || k < args.depth; k += kDepthBlock) {
    const int64_t depth = at_most(kDepthBlock, args.depth - k);
    if (transposed) pack_rows(args, row, rows, k, depth, packed_a);
    const Block<T> block{args, row, rows, k, depth, transposed ? packed_a : nullptr};
    for (int64_t p = first; p < last; ++p) block.run(p);
  }
}

template <class T>
void matmul(const MatrixProduct<T>& args, int64_t begin, int64_t end) {
  const int64_t panels = UnevenPanels(args.columns, kWidth<T>).count();
  // A transposed b is read along the columns, each from end to end before the next: in pieces, one
  // to a block of the depth, its pages would have to be found again for each.
  const bool along = args.b_row_stride == 1 && args.a_row_stride != 1;
  for (int64_t item = begin; item < end;) {
    const int64_t first = item % panels;
    const int64_t last = at_most(panels, first + (along ? 1 : end - item));
    const int64_t row = item / panels * args.row_block;
    multiply_panels(args, row, at_most(args.row_block, args.rows - row), first, last);
    item += last - first;
  }
}
