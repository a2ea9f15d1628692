// One time step of a sequence: a product with packed weights, the gates in its epilogue. Included
// like simd.h.
#pragma once

// Calls body.run(column, lanes) for the vectors of columns [begin, end).
template <class T, class Body>
LLTM_INLINE void for_each_column_vector(int64_t begin, int64_t end, const Body& body) {
  int64_t column = begin;
  for (; column + kWidth<T> <= end; column += kWidth<T>) body.run(column, Full{});
  if (column < end) body.run(column, Tail{end - column});
}

// Forward -----------------------------------------------------------------------------------------

// The work items of a forward step: the panels of each head.
template <class Gates, class T>
struct HeadPanels {
  int64_t size;  // states of a head
  ForwardPanels<Gates::kGates> panels;

  HeadPanels(int64_t state, int64_t heads) : size(state / heads), panels(size, kWidth<T>) {}
  int64_t head(int64_t item) const { return item / panels.count(); }
  int64_t vectors(int64_t item) const { return panels.size(item % panels.count()); }
  int64_t column(int64_t item) const {  // of the head
    return panels.first(item % panels.count()) * kWidth<T>;
  }
  int64_t packed(int64_t item) const {  // columns of packed weights before the item
    const int64_t room = panels.count() * kForwardVectors<Gates::kGates> * kWidth<T>;
    return Gates::kGates * (head(item) * room + column(item));
  }
};

// packed[panel][k][gate][column of the panel] = weights[gate * gate_rows + column, k], zero beyond
// the head.
template <class Gates, class T>
void pack_forward(const Pack<T>& args, int64_t begin, int64_t end) {
  constexpr int kGates = Gates::kGates;
  const HeadPanels<Gates, T> of(args.state, 1);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = of.column(panel), columns = of.vectors(panel) * kWidth<T>;
    for (int gate = 0; gate < kGates; ++gate) {
      transpose_into(args.weights + (gate * args.gate_rows + first) * args.row_stride,
                     args.row_stride, at_most(columns, args.state - first), args.columns,
                     args.packed + of.packed(panel) * args.columns + gate * columns,
                     kGates * columns, columns);
    }
  }
}

// A panel of a head.
template <class Gates, class T, int Vectors>
struct ForwardPanel {
  static constexpr int kGates = Gates::kGates, kSums = kGates * Vectors;
  using Sums = TileSums<compute_t<T>, kSums>;
  const StepForward<T>& args;
  int64_t size;  // states of a head
  int64_t head;
  int64_t column;  // of the head
  int64_t packed;  // columns of packed weights before the panel

  void run() const {
    Sums sums, shares;
    const bool has_input = args.x.depth > 0;
    for (int64_t row = 0, rows; row < args.gates.rows; row += rows) {
      rows = next_rows<kSums>(args.gates.rows - row);
      multiply(args.h, args.heads, row, rows, sums, false);
      if (has_input) multiply(args.x, 1, row, rows, Gates::kSplit ? shares : sums, !Gates::kSplit);
      for (int v = 0; v < Vectors; ++v) finish(row, rows, v, sums, shares);
    }
  }

  // Each head has its own columns of the state's rows, and all of the input's.
  void multiply(const PackedProduct<T>& product, int64_t heads, int64_t row, int64_t rows,
                Sums& sums, bool add) const {
    const int64_t stride = heads * product.depth;
    const int64_t first = heads == 1 ? 0 : head * product.depth;
    const TileOperands<compute_t<T>> operands{product.rows + row * stride + first,
                                              stride,
                                              1,
                                              product.packed + packed * product.depth,
                                              int64_t{kSums * kWidth<T>},
                                              product.depth};
    multiply_panel(operands, rows, sums, add);
  }

  // The gates of a vector of the panel, after the product.
  void finish(int64_t row, int64_t rows, int vector, const Sums& sums, const Sums& shares) const {
    const bool apart = Gates::kSplit && args.x.depth > 0;
    const int64_t at = column + vector * kWidth<T>;
    const GateSums<compute_t<T>> of{sums.at[0][vector], apart ? shares.at[0][vector] : nullptr,
                                    kSums * kWidth<T>, Vectors * kWidth<T>};
    with_lanes<T>(size - at, [&](auto lanes) {
      finish_forward<Gates>(args.gates, row, rows, head * size + at, of, lanes);
    });
  }
};

template <class Gates, class T, int Vectors>
void step_forward_panel(const StepForward<T>& args, const HeadPanels<Gates, T>& of, int64_t item) {
  const ForwardPanel<Gates, T, Vectors> panel{args, of.size, of.head(item), of.column(item),
                                              of.packed(item)};
  panel.run();
}

template <class Gates, class T>
void step_forward(const StepForward<T>& args, int64_t begin, int64_t end) {
  constexpr int most = kForwardVectors<Gates::kGates>;
  const HeadPanels<Gates, T> of(args.gates.state, args.heads);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t item = args.from_last ? begin + end - 1 - i : i;
    const int64_t vectors = of.vectors(item);
    if (vectors == most) {
      step_forward_panel<Gates, T, most>(args, of, item);
    } else if (vectors == 2) {
      step_forward_panel < Gates, T, most<2 ? most : 2>(args, of, item);
    } else {
      step_forward_panel<Gates, T, 1>(args, of, item);
    }
  }
}

// Backward ----------------------------------------------------------------------------------------

template <class T>
struct CopyVectors {
  const T* from;
  compute_t<T>* to;

  template <class Lanes>
  LLTM_INLINE void run(int64_t at, Lanes lanes) const {
    lanes.store_to(to + at, lanes.load_from(from + at));
  }
};

// packed[panel][gate * state + k][lane] = weights[gate * gate_rows + k, column of the panel +
// lane], zero beyond the last column.
template <class Gates, class T>
void pack_backward(const Pack<T>& args, int64_t begin, int64_t end) {
  const UnevenPanels panels(args.columns, kWidth<T>);
  const int64_t depth = Gates::kGates * args.state;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panels.first(panel) * kWidth<T>;
    const int64_t columns = panels.size(panel) * kWidth<T>;
    const int64_t count = at_most(columns, args.columns - first);
    compute_t<T>* to = args.packed + first * depth;
    for (int64_t gate = 0; gate < Gates::kGates; ++gate) {
      for (int64_t k = 0; k < args.state; ++k, to += columns) {
        const T* from = args.weights + (gate * args.gate_rows + k) * args.row_stride + first;
        for_each_column_vector<T>(0, count, CopyVectors<T>{from, to});
        for (int64_t lane = count; lane < columns; ++lane) to[lane] = compute_t<T>(0);
      }
    }
  }
}

// A panel of a head.
template <class Gates, class T>
struct BackwardPanel {
  using C = compute_t<T>;
  const StepBackward<T>& args;
  int64_t size;  // states of a head
  int64_t head;
  int64_t column;   // of the head
  const C* packed;  // the panel's weights

  template <int Vectors>
  void run() const {
    TileSums<C, Vectors> sums;
    for (int64_t row = 0, rows; row < args.gates.rows; row += rows) {
      rows = next_rows<Vectors>(args.gates.rows - row);
      multiply(row, rows, sums);
      for (int v = 0; v < Vectors; ++v) {
        finish(row, rows, column + v * kWidth<T>, {sums.at[0][v], Vectors * kWidth<T>});
      }
    }
  }

  // The gradient of h for some rows. The rows of d_z hold a head's elements of each gate in a piece
  // of their own; those of a single head are one piece. The parts of a piece are whole blocks of
  // its sums, so that the same is added in the same order as at once.
  template <int Vectors>
  void multiply(int64_t row, int64_t rows, TileSums<C, Vectors>& sums) const {
    constexpr int64_t columns = Vectors * kWidth<T>, block = kTileSumBlock<C>;
    const int64_t width = Gates::kGates * args.gates.state;
    const int64_t pieces = args.heads == 1 ? 1 : Gates::kGates;
    const int64_t depth = Gates::kGates * size / pieces, blocks = (depth + block - 1) / block;
    BackwardFetches<Gates, Vectors, T> fetches(args.gates, row, rows, head * size + column);
    const int64_t parts = fetches.parts(blocks);
    for (int64_t i = 0; i < pieces * parts; ++i) {
      const int64_t piece = i / parts, part = i % parts;
      const int64_t k = blocks * part / parts * block;
      const int64_t end = at_most(blocks * (part + 1) / parts * block, depth);
      const TileOperands<C> operands{
          args.d_z_after + row * width + piece * args.gates.state + head * size + k,
          width,
          1,
          packed + (piece * size + k) * columns,
          columns,
          end - k};
      fetches.ask(i, pieces * parts);
      tile_of<C, Vectors>(rows)(operands, &sums.at[0][0][0], i > 0);
    }
  }

  // The gates of a vector of the panel, after the product.
  void finish(int64_t row, int64_t rows, int64_t at, GradientSums<C> sums) const {
    with_lanes<T>(size - at, [&](auto lanes) {
      finish_backward<Gates>(args.gates, row, rows, head * size + at, sums, lanes);
    });
  }
};

template <class Gates, class T>
void step_backward(const StepBackward<T>& args, int64_t begin, int64_t end) {
  const int64_t size = args.gates.state / args.heads, depth = Gates::kGates * size;
  const UnevenPanels panels(size, kWidth<T>);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t item = args.from_last ? begin + end - 1 - i : i;
    const int64_t head = item / panels.count(), at = item % panels.count();
    const int64_t column = panels.first(at) * kWidth<T>;
    const int64_t room = panels.count() * kBackwardVectors * kWidth<T>;  // columns of a packed head
    const BackwardPanel<Gates, T> panel{args, size, head, column,
                                        args.packed + (head * room + column) * depth};
    switch (panels.size(at)) {
      case 3:
        panel.template run<3>();
        break;
      case 2:
        panel.template run<2>();
        break;
      default:
        panel.template run<1>();
    }
  }
}
