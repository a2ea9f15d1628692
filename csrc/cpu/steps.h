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

// packed[panel][k][gate][lane] = weights[gate * S + panel * width + lane, k], zero beyond S.
template <class Gates, class T>
void pack_forward(const Pack<T>& args, int64_t begin, int64_t end) {
  constexpr int kGates = Gates::kGates, width = kWidth<T>;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panel * width, states = at_most(width, args.state - first);
    for (int gate = 0; gate < kGates; ++gate) {
      transpose_into(args.weights + (gate * args.state + first) * args.row_stride, args.row_stride,
                     states, args.columns,
                     args.packed + first * args.columns * kGates + gate * width,
                     int64_t{kGates * width}, int64_t{width});
    }
  }
}

template <class Gates, class T>
struct ForwardPanel {
  const StepForward<T>& args;

  template <class Lanes>
  void run(int64_t column, Lanes lanes) const {
    constexpr int kGates = Gates::kGates;
    TileSums<compute_t<T>, kGates> sums;
    for (int64_t row = 0; row < args.gates.rows; row += kTileRows) {
      const int64_t rows = at_most(kTileRows, args.gates.rows - row);
      multiply(args.h, row, rows, column, sums, false);
      if (args.x.depth > 0) multiply(args.x, row, rows, column, sums, true);
      for (int64_t i = 0; i < rows; ++i) {
        vector_t<T> z[kGates];
#pragma GCC unroll 4
        for (int gate = 0; gate < kGates; ++gate) z[gate] = load(sums.at[i][gate]);
        finish_forward<Gates>(args.gates, row + i, column, z, lanes);
      }
    }
  }

  static void multiply(const PackedProduct<T>& of, int64_t row, int64_t rows, int64_t column,
                       TileSums<compute_t<T>, Gates::kGates>& sums, bool add) {
    using C = compute_t<T>;
    constexpr int kGates = Gates::kGates;
    const TileOperands<C> operands{
        of.rows + row * of.depth, of.depth, 1, of.packed + column * of.depth * kGates,
        kGates * kWidth<T>,       of.depth};
    tile_of<C, kGates>(rows)(operands, &sums.at[0][0][0], add);
  }
};

template <class Gates, class T>
void step_forward(const StepForward<T>& args, int64_t begin, int64_t end) {
  const int64_t width = kWidth<T>, state = args.gates.state;
  for_each_column_vector<T>(begin * width, end * width < state ? end * width : state,
                            ForwardPanel<Gates, T>{args});
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

// packed[panel][k][lane] = weights[k, panel * columns + lane], zero beyond the last column.
template <class Gates, class T>
void pack_backward(const Pack<T>& args, int64_t begin, int64_t end) {
  constexpr int64_t columns = kBackwardVectors * kWidth<T>;
  const int64_t depth = Gates::kGates * args.state;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t count = at_most(columns, args.columns - panel * columns);
    compute_t<T>* to = args.packed + panel * depth * columns;
    for (int64_t k = 0; k < depth; ++k, to += columns) {
      const T* from = args.weights + k * args.row_stride + panel * columns;
      for_each_column_vector<T>(0, count, CopyVectors<T>{from, to});
      for (int64_t lane = count; lane < columns; ++lane) to[lane] = compute_t<T>(0);
    }
  }
}

template <class Gates, class T>
void backward_panel(const StepBackward<T>& args, int64_t panel) {
  using C = compute_t<T>;
  constexpr int vectors = kBackwardVectors, width = kWidth<T>;
  const int64_t state = args.gates.state, depth = Gates::kGates * state;
  const int64_t first = panel * vectors * width;
  TileSums<C, vectors> sums;
  TileOperands<C> operands{nullptr, depth, 1, args.packed + first * depth, vectors * width, depth};
  for (int64_t row = 0; row < args.gates.rows; row += kTileRows) {
    const int64_t rows = at_most(kTileRows, args.gates.rows - row);
    operands.a = args.d_z_after + row * depth;
    tile_of<C, vectors>(rows)(operands, &sums.at[0][0][0], false);
    for (int64_t i = 0; i < rows; ++i) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t column = first + v * width;
        const auto grad_h = load(sums.at[i][v]);
        if (column + width <= state) {
          finish_backward<Gates>(args.gates, row + i, column, grad_h, Full{});
        } else if (column < state) {
          finish_backward<Gates>(args.gates, row + i, column, grad_h, Tail{state - column});
        }
      }
    }
  }
}

template <class Gates, class T>
void step_backward(const StepBackward<T>& args, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) backward_panel<Gates>(args, panel);
}
