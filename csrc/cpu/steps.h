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

// packed[panel][k][gate][lane] = weights[gate * gate_rows + panel * width + lane, k], zero beyond
// the head.
template <class Gates, class T>
void pack_forward(const Pack<T>& args, int64_t begin, int64_t end) {
  constexpr int kGates = Gates::kGates, width = kWidth<T>;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panel * width, states = at_most(width, args.state - first);
    for (int gate = 0; gate < kGates; ++gate) {
      transpose_into(args.weights + (gate * args.gate_rows + first) * args.row_stride,
                     args.row_stride, states, args.columns,
                     args.packed + first * args.columns * kGates + gate * width,
                     int64_t{kGates * width}, int64_t{width});
    }
  }
}

// The work items of a forward step: the panels of each head, of one vector.
template <class T>
struct HeadPanels {
  int64_t size;    // states of a head
  int64_t panels;  // of a head

  HeadPanels(int64_t state, int64_t heads)
      : size(state / heads), panels((size + kWidth<T> - 1) / kWidth<T>) {}
  int64_t head(int64_t item) const { return item / panels; }
  int64_t column(int64_t item) const { return item % panels * kWidth<T>; }  // of the head
};

template <class Gates, class T>
struct ForwardPanel {
  const StepForward<T>& args;
  const HeadPanels<T>& of;

  template <class Lanes>
  void run(int64_t item, Lanes lanes) const {
    constexpr int kGates = Gates::kGates, kRecurrent = Gates::kPre - kGates;
    const int64_t head = of.head(item), column = of.column(item);
    TileSums<compute_t<T>, kGates> sums, shares;
    for (int64_t row = 0; row < args.gates.rows; row += kTileRows) {
      const int64_t rows = at_most(kTileRows, args.gates.rows - row);
      multiply(args.h, head, row, rows, item, sums, false);
      const bool has_input = args.x.depth > 0;
      if (has_input) {
        multiply(args.x, head, row, rows, item, Gates::kSplit ? shares : sums, !Gates::kSplit);
      }
      for (int64_t i = 0; i < rows; ++i) {
        vector_t<T> z[Gates::kPre] = {};
#pragma GCC unroll 16
        for (int gate = 0; gate < kGates; ++gate) {
          if (Gates::kSplit && has_input) z[gate] = load(shares.at[i][gate]);
          z[kRecurrent + gate] = load(sums.at[i][gate]);
        }
        finish_forward<Gates>(args.gates, row + i, head * of.size + column, z, lanes);
      }
    }
  }

  void multiply(const PackedProduct<T>& product, int64_t head, int64_t row, int64_t rows,
                int64_t item, TileSums<compute_t<T>, Gates::kGates>& sums, bool add) const {
    using C = compute_t<T>;
    constexpr int64_t lanes = Gates::kGates * kWidth<T>;
    const int64_t stride = args.heads * product.depth;
    const TileOperands<C> operands{
        product.rows + row * stride + head * product.depth, stride, 1,
        product.packed + item * product.depth * lanes,      lanes,  product.depth};
    tile_of<C, Gates::kGates>(rows)(operands, &sums.at[0][0][0], add);
  }
};

template <class Gates, class T>
void step_forward(const StepForward<T>& args, int64_t begin, int64_t end) {
  const HeadPanels<T> of(args.gates.state, args.heads);
  static_assert(kForwardVectors == 1);
  const ForwardPanel<Gates, T> panel{args, of};
  for (int64_t item = begin; item < end; ++item) {
    const int64_t left = of.size - of.column(item);
    left >= kWidth<T> ? panel.run(item, Full{}) : panel.run(item, Tail{left});
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
    for (int64_t row = 0; row < args.gates.rows; row += kTileRows) {
      const int64_t rows = at_most(kTileRows, args.gates.rows - row);
      multiply(row, rows, sums);
      for (int64_t i = 0; i < rows; ++i) {
        for (int v = 0; v < Vectors; ++v) finish(row + i, column + v * kWidth<T>, sums.at[i][v]);
      }
    }
  }

  // The gradient of h for some rows. The rows of d_z hold a head's elements of each gate in a piece
  // of their own; those of a single head are one piece.
  template <int Vectors>
  void multiply(int64_t row, int64_t rows, TileSums<C, Vectors>& sums) const {
    constexpr int64_t columns = Vectors * kWidth<T>;
    const int64_t width = Gates::kGates * args.gates.state;
    const int64_t pieces = args.heads == 1 ? 1 : Gates::kGates;
    const int64_t depth = Gates::kGates * size / pieces;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const TileOperands<C> operands{
          args.d_z_after + row * width + piece * args.gates.state + head * size,
          width,
          1,
          packed + piece * size * columns,
          columns,
          depth};
      tile_of<C, Vectors>(rows)(operands, &sums.at[0][0][0], piece > 0);
    }
  }

  void finish(int64_t row, int64_t at, const C* sums) const {
    const auto grad_h = load(sums);
    if (at + kWidth<T> <= size) {
      finish_backward<Gates>(args.gates, row, head * size + at, grad_h, Full{});
    } else {
      finish_backward<Gates>(args.gates, row, head * size + at, grad_h, Tail{size - at});
    }
  }
};

template <class Gates, class T>
void step_backward(const StepBackward<T>& args, int64_t begin, int64_t end) {
  const int64_t size = args.gates.state / args.heads, depth = Gates::kGates * size;
  const UnevenPanels panels(size, kWidth<T>);
  for (int64_t item = begin; item < end; ++item) {
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
