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

// The work items of a step: the panels of each head.
template <class T>
struct HeadPanels {
  int64_t size;    // states of a head
  int64_t panels;  // of a head
  int64_t vectors;

  HeadPanels(int64_t state, int64_t heads, int64_t vectors)
      : size(state / heads), panels(0), vectors(vectors) {
    const int64_t columns = vectors * kWidth<T>;
    panels = (size + columns - 1) / columns;
  }
  int64_t head(int64_t item) const { return item / panels; }
  int64_t column(int64_t item) const { return item % panels * vectors * kWidth<T>; }  // of the head
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
  const HeadPanels<T> of(args.gates.state, args.heads, kForwardVectors);
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

// packed[panel][gate * state + k][lane] = weights[gate * gate_rows + k, panel * columns + lane],
// zero beyond the last column.
template <class Gates, class T>
void pack_backward(const Pack<T>& args, int64_t begin, int64_t end) {
  constexpr int64_t columns = kBackwardVectors * kWidth<T>;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t count = at_most(columns, args.columns - panel * columns);
    compute_t<T>* to = args.packed + panel * Gates::kGates * args.state * columns;
    for (int64_t gate = 0; gate < Gates::kGates; ++gate) {
      for (int64_t k = 0; k < args.state; ++k, to += columns) {
        const T* from =
            args.weights + (gate * args.gate_rows + k) * args.row_stride + panel * columns;
        for_each_column_vector<T>(0, count, CopyVectors<T>{from, to});
        for (int64_t lane = count; lane < columns; ++lane) to[lane] = compute_t<T>(0);
      }
    }
  }
}

// The gradient of h for some rows of a panel. The rows of d_z hold a head's elements of each gate
// in a piece of their own; those of a single head are one piece.
template <class Gates, class T>
void multiply_backward(const StepBackward<T>& args, const HeadPanels<T>& of, int64_t item,
                       int64_t row, int64_t rows, TileSums<compute_t<T>, kBackwardVectors>& sums) {
  using C = compute_t<T>;
  constexpr int64_t columns = kBackwardVectors * kWidth<T>;
  const int64_t depth = Gates::kGates * of.size, width = Gates::kGates * args.gates.state;
  const int64_t pieces = args.heads == 1 ? 1 : Gates::kGates;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = piece * of.size;
    const TileOperands<C> operands{
        args.d_z_after + row * width + piece * args.gates.state + of.head(item) * of.size,
        width,
        1,
        args.packed + (item * depth + first) * columns,
        columns,
        depth / pieces};
    tile_of<C, kBackwardVectors>(rows)(operands, &sums.at[0][0][0], piece > 0);
  }
}

template <class Gates, class T>
void backward_panel(const StepBackward<T>& args, const HeadPanels<T>& of, int64_t item) {
  constexpr int vectors = kBackwardVectors, width = kWidth<T>;
  const int64_t first = of.column(item), offset = of.head(item) * of.size;
  TileSums<compute_t<T>, vectors> sums;
  for (int64_t row = 0; row < args.gates.rows; row += kTileRows) {
    const int64_t rows = at_most(kTileRows, args.gates.rows - row);
    multiply_backward<Gates>(args, of, item, row, rows, sums);
    for (int64_t i = 0; i < rows; ++i) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t column = first + v * width;
        const auto grad_h = load(sums.at[i][v]);
        if (column + width <= of.size) {
          finish_backward<Gates>(args.gates, row + i, offset + column, grad_h, Full{});
        } else if (column < of.size) {
          finish_backward<Gates>(args.gates, row + i, offset + column, grad_h,
                                 Tail{of.size - column});
        }
      }
    }
  }
}

template <class Gates, class T>
void step_backward(const StepBackward<T>& args, int64_t begin, int64_t end) {
  const HeadPanels<T> of(args.gates.state, args.heads, kBackwardVectors);
  for (int64_t item = begin; item < end; ++item) backward_panel<Gates>(args, of, item);
}
