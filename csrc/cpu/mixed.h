// Products of 16-bit operands: widened block by block, summed in float, rounded once at the end.
// Included like simd.h.
#pragma once

// A block of c, whose sums and packed operands stay in a core's own cache: large enough for packing
// to cost little.
constexpr int64_t kMixedRows = 256, kMixedColumns = 128;

constexpr int kMixedVectors = 2;      // of b in a tile
constexpr int64_t kMixedDepth = 128;  // terms whose operands are packed at a time
template <class T>
constexpr int64_t kMixedPanel = kMixedVectors * kWidth<T>;
constexpr int64_t kMixedTiles = (kMixedRows + kTileRows - 1) / kTileRows;

// to[k][lane] = from(k, lane), zero beyond `lanes`.
template <class T>
void widen_panel(const T* from, int64_t row_stride, int64_t column_stride, int64_t depth,
                 int64_t lanes, float* to) {
  constexpr int64_t panel = kMixedPanel<T>, width = kWidth<T>;
  if (column_stride != 1) {
    return transpose_into(from, column_stride, lanes, depth, to, panel, panel);
  }
  for (int64_t k = 0; k < depth; ++k, to += panel, from += row_stride) {
    for (int64_t lane = 0; lane < panel; lane += width) {
      const bool full = lane + width <= lanes;
      const Tail rest{lane < lanes ? lanes - lane : 0};
      store(to + lane, full ? load(from + lane) : rest.load_from(from + lane));
    }
  }
}

// The rows of a that a block of c needs, for one block of the depth.
template <class T>
struct MixedRows {
  alignas(kVectorBytes) float packed[kMixedTiles * kTileRows * kMixedDepth];

  // [row][depth], or [tile][depth][kTileRows] where a is transposed
  TileOperands<float> widen(const MixedProduct<T>& args, int64_t row, int64_t rows, int64_t k,
                            int64_t depth) {
    const T* from = args.a + row * args.a_row_stride + k * args.a_column_stride;
    if (args.a_column_stride == 1) {
      for (int64_t i = 0; i < rows; ++i) {
        widen_all(from + i * args.a_row_stride, packed + i * depth, depth);
      }
      return {packed, depth, 1, nullptr, kMixedPanel<T>, depth};
    }
    alignas(kVectorBytes) float line[kMixedTiles * kTileRows] = {};
    for (int64_t i = 0; i < depth; ++i) {
      widen_all(from + i * args.a_column_stride, line, rows);
      for (int64_t tile = 0; tile * kTileRows < rows; ++tile) {
        __builtin_memcpy(packed + (tile * depth + i) * kTileRows, line + tile * kTileRows,
                         kTileRows * sizeof(float));
      }
    }
    return {packed, 1, kTileRows, nullptr, kMixedPanel<T>, depth};
  }
};

template <class T, class Lanes>
LLTM_INLINE void write_mixed(const MixedProduct<T>& args, int64_t at, vector_t<T> sum,
                             Lanes lanes) {
  if (args.c) lanes.store_to(args.c + at, sum);
  if (args.wide_c) lanes.store_to(args.wide_c + at, sum);
}

template <class T>
void write_mixed_row(const MixedProduct<T>& args, int64_t row, int64_t column, int64_t columns,
                     const float* sums) {
  const int64_t at = row * args.c_row_stride + column;
  int64_t j = 0;
  for (; j + kWidth<T> <= columns; j += kWidth<T>)
    write_mixed(args, at + j, load(sums + j), Full{});
  if (j < columns) write_mixed(args, at + j, load(sums + j), Tail{columns - j});
}

// A block of c, kMixedRows by kMixedColumns.
template <class T>
void mixed_block(const MixedProduct<T>& args, int64_t row, int64_t column) {
  constexpr int64_t panel = kMixedPanel<T>;
  constexpr int64_t panels = (kMixedColumns + panel - 1) / panel;
  const int64_t rows = at_most(kMixedRows, args.rows - row);
  const int64_t columns = at_most(kMixedColumns, args.columns - column);
  alignas(kVectorBytes) float sums[panels][kMixedRows][panel];
  alignas(kVectorBytes) float packed_b[kMixedDepth * panel];
  MixedRows<T> packed_a;
  // At least once: a product of depth 0 is all zeros.
  for (int64_t k = 0; k == 0 || k < args.depth; k += kMixedDepth) {
    const int64_t depth = at_most(kMixedDepth, args.depth - k);
    const TileOperands<float> of = packed_a.widen(args, row, rows, k, depth);
    for (int64_t p = 0; p * panel < columns; ++p) {
      widen_panel(args.b + k * args.b_row_stride + (column + p * panel) * args.b_column_stride,
                  args.b_row_stride, args.b_column_stride, depth,
                  at_most(panel, columns - p * panel), packed_b);
      TileOperands<float> tile = of;
      tile.b = packed_b;
      for (int64_t i = 0; i < rows; i += kTileRows) {
        tile.a = of.a + i * depth;
        tile_of<float, kMixedVectors>(at_most(kTileRows, rows - i))(tile, sums[p][i], k > 0);
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t p = 0; p * panel < columns; ++p) {
      write_mixed_row(args, row + i, column + p * panel, at_most(panel, columns - p * panel),
                      sums[p][i]);
    }
  }
}

// Few rows ----------------------------------------------------------------------------------------
// Rows of b are widened as they are read, along them, and nothing is packed.

constexpr int64_t kFewMixedRows = 4, kFewMixedColumns = 256;

template <class T>
bool has_few_rows(const MixedProduct<T>& args) {
  return args.rows <= kFewMixedRows && args.a_column_stride == 1 && args.b_column_stride == 1;
}

// sums[row] += so many terms of each row.
template <class T, int Terms>
struct FewRowsTerms {
  using Sums = float[kFewMixedRows][kFewMixedColumns];
  const MixedProduct<T>& args;
  float a[kFewMixedRows][Terms];
  const T* b;
  Sums& sums;

  FewRowsTerms(const MixedProduct<T>& of, int64_t column, int64_t k, Sums& to)
      : args(of), b(of.b + k * of.b_row_stride + column), sums(to) {
    for (int64_t row = 0; row < of.rows; ++row) {
      for (int i = 0; i < Terms; ++i) a[row][i] = scalar(of.a[row * of.a_row_stride + k + i]);
    }
  }

  template <class Lanes>
  LLTM_INLINE void run(int64_t column, Lanes lanes) const {
    VFloat terms[Terms];
#pragma GCC unroll 4
    for (int i = 0; i < Terms; ++i) terms[i] = lanes.load_from(b + i * args.b_row_stride + column);
    for (int64_t row = 0; row < args.rows; ++row) {
      VFloat sum = load(sums[row] + column);
#pragma GCC unroll 4
      for (int i = 0; i < Terms; ++i) sum += broadcast(a[row][i]) * terms[i];
      store(sums[row] + column, sum);
    }
  }
};

template <class T>
void few_rows_product(const MixedProduct<T>& args, int64_t begin, int64_t end) {
  static_assert(kMixedColumns <= kFewMixedColumns, "a block of columns has its sums");
  for (int64_t item = begin; item < end; ++item) {
    const int64_t column = item * args.column_block;
    const int64_t columns = at_most(args.column_block, args.columns - column);
    alignas(kVectorBytes) float sums[kFewMixedRows][kFewMixedColumns] = {};
    int64_t k = 0;
    for (; k + 4 <= args.depth; k += 4) {
      for_each_column_vector<T>(0, columns, FewRowsTerms<T, 4>(args, column, k, sums));
    }
    for (; k < args.depth; ++k) {
      for_each_column_vector<T>(0, columns, FewRowsTerms<T, 1>(args, column, k, sums));
    }
    for (int64_t row = 0; row < args.rows; ++row) {
      write_mixed_row(args, row, column, columns, sums[row]);
    }
  }
}

// Few terms ---------------------------------------------------------------------------------------
// Such a product is bound by writing c, so rows of c are written along them, one after the other.

constexpr int64_t kFewMixedTerms = 8, kFewTermsColumns = 1024;

template <class T>
bool has_few_terms(const MixedProduct<T>& args) {
  return args.depth <= kFewMixedTerms && args.b_column_stride == 1;
}

// Rows of c, some columns of them. Terms beyond the depth are zeros.
template <class T, int Terms>
struct FewTermsRow {
  const MixedProduct<T>& args;
  int64_t first;  // column
  alignas(kVectorBytes) float b[Terms][kFewTermsColumns] = {};
  float a[Terms] = {};
  int64_t at = 0;  // of the row's columns in c

  FewTermsRow(const MixedProduct<T>& of, int64_t column, int64_t columns)
      : args(of), first(column) {
    for (int64_t k = 0; k < of.depth; ++k) {
      widen_all(of.b + k * of.b_row_stride + column, b[k], columns);
    }
  }

  void start(int64_t row) {
    at = row * args.c_row_stride + first;
    for (int64_t k = 0; k < args.depth; ++k) {
      a[k] = scalar(args.a[row * args.a_row_stride + k * args.a_column_stride]);
    }
  }

  template <class Lanes>
  LLTM_INLINE void run(int64_t column, Lanes lanes) const {
    VFloat sum = broadcast(a[0]) * load(b[0] + column);
#pragma GCC unroll 16
    for (int k = 1; k < Terms; ++k) sum += broadcast(a[k]) * load(b[k] + column);
    write_mixed(args, at + column, sum, lanes);
  }
};

template <int Terms, class T>
void few_terms_rows(const MixedProduct<T>& args, int64_t begin, int64_t end) {
  const int64_t across = args.column_blocks();
  for (int64_t item = begin; item < end;) {
    const int64_t block = item / across, next = at_most((block + 1) * across, end);
    const int64_t last = at_most((next - block * across) * args.column_block, args.columns);
    const int64_t last_row = at_most((block + 1) * args.row_block, args.rows);
    for (int64_t column = item % across * args.column_block; column < last;
         column += kFewTermsColumns) {
      const int64_t columns = at_most(kFewTermsColumns, last - column);
      FewTermsRow<T, Terms> terms(args, column, columns);
      for (int64_t row = block * args.row_block; row < last_row; ++row) {
        terms.start(row);
        for_each_column_vector<T>(0, columns, terms);
      }
    }
    item = next;
  }
}

template <class T>
void few_terms_product(const MixedProduct<T>& args, int64_t begin, int64_t end) {
  if (args.depth <= kFewMixedTerms / 2) {
    return few_terms_rows<kFewMixedTerms / 2>(args, begin, end);
  }
  few_terms_rows<kFewMixedTerms>(args, begin, end);
}

template <class T>
void mixed_product(const MixedProduct<T>& args, int64_t begin, int64_t end) {
  if (has_few_rows(args)) return few_rows_product(args, begin, end);
  if (has_few_terms(args)) return few_terms_product(args, begin, end);
  for (int64_t item = begin; item < end; ++item) {
    mixed_block(args, item / args.column_blocks() * args.row_block,
                item % args.column_blocks() * args.column_block);
  }
}
