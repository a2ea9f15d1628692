// Products that read their operands where they are, for work too short to pack for. Included like
// simd.h.
#pragma once

// General product ---------------------------------------------------------------------------------

// Terms of a pass: those that are summed before they are added to c.
template <class T>
constexpr int64_t kPassTerms = kTileSumBlock<T>;

// Some terms of every sum of c.
template <class T>
struct ProductPass {
  static constexpr int64_t kVector = kWidth<T>;

  const Product<T>& args;
  int64_t first, terms;

  // The columns [column, last), some vectors at a time: no sum depends on how many.
  void run(int64_t column, int64_t last) const {
    if (args.rows == 1) column = run_row(column, last);
    while (column < last) {
      with_next_vectors((last - column + kVector - 1) / kVector, [&](auto vectors) {
        constexpr int64_t width = vectors * kVector;
        if (column + width <= last) {
          multiply<vectors>(b() + column, args.b_row_stride, column, width);
        } else {
          run_padded<vectors>(column, last - column);
        }
        column += width;
      });
    }
  }

  // A single row takes as long as b takes to read. Up to the column that it returns.
  int64_t run_row(int64_t column, int64_t last) const {
    constexpr int64_t width = kSingleRowVectors * kVector;
    for (; column + width <= last; column += width) {
      tile_product<T, 1, kSingleRowVectors>(operands(b() + column, args.b_row_stride),
                                            args.c + column, first > 0);
    }
    return column;
  }

  // Columns with a part of a vector are copied beside zeros, a block of rows of b at a time.
  template <int Vectors>
  void run_padded(int64_t column, int64_t columns) const {
    constexpr int64_t width = Vectors * kVector;
    alignas(kVectorBytes) T padded[kPassTerms<T> * width] = {};
    for (int64_t k = first; k == first || k < first + terms; k += kPassTerms<T>) {
      const ProductPass pass{args, k, at_most(kPassTerms<T>, first + terms - k)};
      const T* from = pass.b() + column;
      for (int64_t i = 0; i < pass.terms; ++i, from += args.b_row_stride) {
        __builtin_memcpy(padded + i * width, from, columns * sizeof(T));
      }
      pass.template multiply<Vectors>(padded, width, column, columns);
    }
  }

  const T* b() const { return args.b + first * args.b_row_stride; }

  LLTM_INLINE TileOperands<T> operands(const T* b, int64_t b_row_stride) const {
    return {args.a + first * args.a_column_stride,
            args.a_row_stride,
            args.a_column_stride,
            b,
            b_row_stride,
            terms};
  }

  // All rows of some columns.
  template <int Vectors>
  void multiply(const T* b, int64_t b_row_stride, int64_t column, int64_t columns) const {
    const bool whole = columns == Vectors * kVector;
    TileOperands<T> of = operands(b, b_row_stride);
    TileSums<T, Vectors> sums;
    T* c = args.c + column;
    for (int64_t row = 0, rows; row < args.rows; row += rows) {
      rows = next_rows<Vectors>(args.rows - row);
      if (whole && rows == kTileRows) {
        tile_product_to<T, kTileRows, Vectors>(of, c, args.c_row_stride, first > 0);
        c += rows * args.c_row_stride;
      } else {
        tile_of<T, Vectors>(rows)(of, &sums.at[0][0][0], false);
        for (int64_t i = 0; i < rows; ++i, c += args.c_row_stride) {
          write(sums.at[i][0], c, columns);
        }
      }
      of.a += rows * args.a_row_stride;
    }
  }

  void write(const T* sums, T* c, int64_t columns) const {
    for (int64_t j = 0; j < columns; j += kVector) {
      with_lanes<T>(columns - j, [&](auto lanes) {
        vector_t<T> sum = load(sums + j);
        if (first > 0) sum += lanes.load_from(c + j);
        lanes.store_to(c + j, sum);
      });
    }
  }
};

// All terms in one pass, a strip of rows at a time: c is written along its rows, and what a strip
// reads of a transposed a, whose columns are in a page each, is packed.
template <class T>
void shallow_product(const Product<T>& args, int64_t column, int64_t last) {
  constexpr int64_t strip = 2 * kTileRows;
  T packed[kPassTerms<T> * strip];
  for (int64_t row = 0; row < args.rows; row += strip) {
    Product<T> rows = args;
    rows.rows = at_most(strip, args.rows - row);
    rows.a += row * args.a_row_stride;
    rows.c += row * args.c_row_stride;
    if (args.a_row_stride == 1) {
      pack_panel<strip>(rows.a, args.a_column_stride, 1, args.depth, rows.rows, packed);
      rows.a = packed;
      rows.a_column_stride = strip;
    }
    ProductPass<T>{rows, 0, args.depth}.run(column, last);
  }
}

// b is read along its rows, a few at a time, unless a cache has all of it.
template <class T>
void product(const Product<T>& args, int64_t begin, int64_t end) {
  constexpr int64_t panel = kProductVectors * kWidth<T>;
  const int64_t column = begin * panel, last = at_most(args.columns, end * panel);
  if (args.depth <= kPassTerms<T>) return shallow_product(args, column, last);
  const int64_t terms = args.is_b_cached ? args.depth : kPassTerms<T>;
  for (int64_t k = 0; k < args.depth; k += terms) {
    ProductPass<T>{args, k, at_most(terms, args.depth - k)}.run(column, last);
  }
}

template <class T>
void transpose(const Transpose<T>& args) {
  transpose_into(args.from, args.columns, args.rows, args.columns, args.to, args.to_stride,
                 args.to_stride);
}

// Cell, many rows ---------------------------------------------------------------------------------
// The weights are broadcast and the batch fills the vectors, so x comes transposed and padded; the
// pre-activations come out with the batch as their last dimension and are transposed at the end.

constexpr int kBatchVectors = kVectorBytes == 64 ? 1 : 2;  // x is padded to a multiple of

// Of states in a block: of one, where there are 16 registers, tiles would have four rows, not six.
constexpr int kStateVectors = kVectorBytes == 64 ? 1 : 2;

// Beyond, packing the weights costs less than broadcasting them for every block of rows.
constexpr int64_t kMaxDirectRows = kVectorBytes == 64 ? 512 : 64;

template <int kGates, class C, int Vectors>
struct BatchBlock {
  static constexpr int kStates = kStateVectors * kWidth<C>, kBatch = Vectors * kWidth<C>;
  alignas(kVectorBytes) C transposed[kGates][kStates][kBatch];
  alignas(kVectorBytes) C z[kGates][kBatch][kStates];

  // Every gate of `states` states from `column` on, for the block of x that begins at `batch`. A
  // function of its own, for all types that are computed in C and for parts of a vector.
  __attribute__((noinline)) void compute(const DirectProduct<C>& args, int64_t column,
                                         int64_t states, int64_t batch) {
    for (int gate = 0; gate < kGates; ++gate) {
      const C* weights = args.weights + (gate * args.gate_rows + column) * args.weights_stride;
      for (int64_t state = 0, rows; state < states; state += rows) {
        rows = next_rows<Vectors>(states - state);
        const TileOperands<C> operands{weights + state * args.weights_stride,
                                       args.weights_stride,
                                       1,
                                       args.x + batch,
                                       args.x_stride,
                                       args.depth};
        tile_of<C, Vectors>(rows)(operands, transposed[gate][state], false);
      }
    }
    for (int gate = 0; gate < kGates; ++gate) {
      transpose_into(&transposed[gate][0][0], kBatch, kStates, kBatch, &z[gate][0][0], kStates,
                     kStates);
    }
  }
};

template <class Gates, class T>
struct ManyRows {
  const CellForward<T, compute_t<T>>& args;
  int64_t column;
  int64_t states;  // from there on

  void run() const {
    const int64_t last = args.product.x_stride / kWidth<T>;
    for (int64_t at = 0; at < last;) {
      with_next_vectors(last - at, [&](auto vectors) {
        run_block<vectors>(at * kWidth<T>);
        at += vectors;
      });
    }
  }

  template <int Vectors>
  void run_block(int64_t first) const {
    BatchBlock<Gates::kGates, compute_t<T>, Vectors> block;
    block.compute(args.product, column, states, first);
    const int64_t rows = at_most(Vectors * kWidth<T>, args.gates.rows - first);
    for (int64_t state = 0; state < states; state += kWidth<T>) {
      const GateSums<compute_t<T>> sums{block.z[0][0] + state, nullptr, block.kStates,
                                        block.kBatch * block.kStates};
      with_lanes<T>(states - state, [&](auto lanes) {
        finish_forward<Gates>(args.gates, first, rows, column + state, sums, lanes);
      });
    }
  }
};

template <class Gates, class T>
void cell_many(const CellForward<T, compute_t<T>>& args, int64_t begin, int64_t end) {
  constexpr int64_t states = kStateVectors * kWidth<T>;
  const int64_t last = at_most(args.gates.state, end * kWidth<T>);
  for (int64_t column = begin * kWidth<T>; column < last; column += states) {
    ManyRows<Gates, T>{args, column, at_most(states, last - column)}.run();
  }
}

// Cell, few rows ----------------------------------------------------------------------------------
// Dot products along the rows of the weights, which are read once, in order.

template <class C>
LLTM_INLINE C sum_of_lanes(vector_t<C> x) {
  C lanes[kWidth<C>];
  store(lanes, x);
#pragma GCC unroll 4
  for (int half = kWidth<C> / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Up to here dot products along the rows of the weights are the fastest, on an AMD Zen 4; of five
// to eleven rows packing is.
constexpr int64_t kMaxFewRows = 4;

// Rows at a time, which share what they read of the weights: as many as their sums leave registers.
constexpr int kDotRows = kVectorBytes == 64 ? 4 : 2;

// Dot products of a gate at a time, of so many states by rows: for three gates their sums, of a
// block and of all, take 24 of the 32 registers of AVX-512, 12 of the 16 of the others. A single
// gate would wait for two sums.
template <int kGates>
constexpr int kDots = kVectorBytes == 64 || kGates == 1 ? 4 : 2;

// Vectors of the depth in a block, for a lane sums one term of each.
constexpr int64_t kDotBlock = 16;

// Where dot products read: `Rows` rows of x, and of each gate's weights those of `States` states,
// the last one again for those that there are not.
template <int kGates, int Rows, int States, class T>
struct DotOperands {
  const T* x[Rows];
  const T* weights[kGates][States];

  DotOperands(const DirectProduct<T>& of, int64_t row, int64_t state) {
    const int64_t last = of.gate_rows - 1;
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) x[i] = of.x + (row + i) * of.x_stride;
#pragma GCC unroll 4
    for (int gate = 0; gate < kGates; ++gate) {
#pragma GCC unroll 4
      for (int i = 0; i < States; ++i) {
        const int64_t at = gate * of.gate_rows + at_most(state + i, last);
        weights[gate][i] = of.weights + at * of.weights_stride;
      }
    }
  }
};

// Sums in registers: a block of the depth in `block`, the blocks before it in `total`.
template <int kGates, int Rows, int States, class T>
struct DotSums {
  using V = vector_t<T>;
  V total[kGates][States][Rows] = {};
  V block[kGates][States][Rows] = {};

  template <class Lanes>
  LLTM_INLINE void add_products(const DotOperands<kGates, Rows, States, T>& of, int64_t k,
                                Lanes lanes) {
    V x[Rows];
#pragma GCC unroll 4
    for (int row = 0; row < Rows; ++row) x[row] = lanes.load_from(of.x[row] + k);
#pragma GCC unroll 4
    for (int gate = 0; gate < kGates; ++gate) {
#pragma GCC unroll 4
      for (int i = 0; i < States; ++i) {
        const V weights = lanes.load_from(of.weights[gate][i] + k);
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) block[gate][i][row] += x[row] * weights;
      }
    }
  }
  LLTM_INLINE void end_block() {
#pragma GCC unroll 4
    for (int gate = 0; gate < kGates; ++gate) {
#pragma GCC unroll 4
      for (int i = 0; i < States; ++i) {
#pragma GCC unroll 4
        for (int row = 0; row < Rows; ++row) {
          total[gate][i][row] += block[gate][i][row];
          block[gate][i][row] = V{};
        }
      }
    }
  }
};

// A vector of states of some rows.
template <int kGates, int64_t Rows, class T>
using DotResults = compute_t<T>[Rows][kGates][kWidth<T>];

// `States` states from `state` on, to z[row][gate][at].
template <int States, int Rows, int kGates, class T>
void dot_products(const DirectProduct<T>& args, int64_t row, int64_t state,
                  DotResults<kGates, Rows, T>& z, int at) {
  constexpr int width = kWidth<T>;
  const DotOperands<kGates, Rows, States, T> operands(args, row, state);
  DotSums<kGates, Rows, States, T> sums;
  int64_t k = 0;
  while (k + width <= args.depth) {
    const int64_t end = at_most(k + kDotBlock * width, args.depth - width + 1);
    for (; k < end; k += width) sums.add_products(operands, k, Full{});
    sums.end_block();
  }
  if (k < args.depth) {
    sums.add_products(operands, k, Tail{args.depth - k});
    sums.end_block();
  }
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
#pragma GCC unroll 4
    for (int i = 0; i < States; ++i) {
#pragma GCC unroll 4
      for (int of = 0; of < Rows; ++of) {
        z[of][gate][at + i] = sum_of_lanes<compute_t<T>>(sums.total[gate][i][of]);
      }
    }
  }
}

// The gates of the first rows of a result, with the input's share or null.
template <class Gates, class T, int64_t Rows, class Lanes>
LLTM_INLINE void finish_dots(const GatesForward<T>& gates, int64_t row, int64_t rows,
                             int64_t column, const DotResults<Gates::kGates, Rows, T>& sums,
                             const DotResults<Gates::kGates, Rows, T>* share, Lanes lanes) {
  constexpr int64_t width = kWidth<T>;
  const GateSums<compute_t<T>> of{sums[0][0], share ? (*share)[0][0] : nullptr,
                                  Gates::kGates * width, width};
  finish_forward<Gates>(gates, row, rows, column, of, lanes);
}

template <class Gates, class T>
struct FewRows {
  const CellForward<T, T>& args;

  template <class Lanes>
  void run(int64_t column, Lanes lanes) const {
    run_from<kDotRows>(0, column, lanes);
  }

  template <int Rows, class Lanes>
  void run_from(int64_t row, int64_t column, Lanes lanes) const {
    for (; row + Rows <= args.gates.rows; row += Rows) run_rows<Rows>(row, column, lanes);
    if constexpr (Rows > 1) run_from<Rows - 1>(row, column, lanes);
  }

  template <int Rows, class Lanes>
  void run_rows(int64_t row, int64_t column, Lanes lanes) const {
    constexpr int states = kDots<Gates::kGates> / Rows;
    const int64_t count = at_most(kWidth<T>, args.gates.state - column);
    const bool has_input = args.input.depth > 0;
    DotResults<Gates::kGates, Rows, T> sums = {}, share = {};
    for (int at = 0; at < count; at += states) {
      dot_products<states, Rows, Gates::kGates>(args.product, row, column + at, sums, at);
      if (!has_input) continue;
      dot_products<states, Rows, Gates::kGates>(args.input, row, column + at, share, at);
    }
    finish_dots<Gates>(args.gates, row, Rows, column, sums, has_input ? &share : nullptr, lanes);
  }
};

template <class Gates, class T>
void cell_few(const CellForward<T, T>& args, int64_t begin, int64_t end) {
  const int64_t width = kWidth<T>, state = args.gates.state;
  for_each_column_vector<T>(begin * width, end * width < state ? end * width : state,
                            FewRows<Gates, T>{args});
}
