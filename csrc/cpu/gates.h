// The gate kernels, over the cell's functor. Included like simd.h.
#pragma once

template <class T>
struct StepScalars {
  compute_t<T> values[kRoom<Cell::kScalars>];

  LLTM_INLINE explicit StepScalars(const Scalars& scalars) {
#pragma GCC unroll 16
    for (int i = 0; i < Cell::kScalars; ++i)
      values[i] = static_cast<compute_t<T>>(scalars.values[i]);
  }
};

// Whether T is computed in another type: states and gradients are then passed on in that, too.
template <class T>
constexpr bool kWidens = !std::is_same_v<T, compute_t<T>>;

// The lines of some rows.
template <int Vectors, class T>
LLTM_INLINE void fetch_rows(const T* from, int64_t stride, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) fetch<Vectors * kWidth<T>>(from + row * stride);
}

// What finish_backward reads and writes of some rows, to be asked for piece by piece while the
// product runs that comes before it: a core waits for a few lines at a time alone.
template <class Gates, int Vectors, class T>
class BackwardFetches {
 public:
  __attribute__((noinline)) BackwardFetches(const GatesBackward<T>& args, int64_t row, int64_t rows,
                                            int64_t column)
      : rows_(rows) {
    // A single row is one stretch of memory, which the processor asks for by itself.
    if (rows == 1) return;
    const int64_t width = args.state, z_width = Gates::kGates * width;
    const int64_t saved_width = Gates::kSaved * width, at = row * width + column;
    for (int i = 0; i < Gates::kSaved; ++i) {
      add(args.saved + row * saved_width + i * width + column, saved_width);
    }
    if (args.grad_h) add(args.grad_h + at, width);
    for (int i = 0; i < Gates::kStates; ++i) {
      if (args.old_state[i]) add(args.old_state[i] + at, width);
      if (args.new_state[i]) add(args.new_state[i] + at, width);
    }
    for (int i = 0; i < Gates::kPre; ++i) {
      const T* d_z = args.d_z[i / Gates::kGates];
      add(d_z + row * z_width + i % Gates::kGates * width + column, z_width);
    }
  }

  // How many parts of a product of so many blocks are multiplied one after the other.
  int64_t parts(int64_t blocks) const { return count_ < 1 ? 1 : blocks < count_ ? blocks : count_; }

  // Before a part is multiplied: its share.
  void ask(int64_t part, int64_t parts) {
    for (const int64_t last = (part + 1) * count_ / parts; next_ < last; ++next_) {
      fetch_rows<Vectors>(pieces_[next_].from, pieces_[next_].stride, rows_);
    }
  }

 private:
  struct Piece {
    const T* from;
    int64_t stride;
  };

  void add(const T* from, int64_t stride) { pieces_[count_++] = {from, stride}; }

  int64_t rows_, count_ = 0, next_ = 0;
  Piece pieces_[Gates::kSaved + 1 + 2 * Gates::kStates + Gates::kPre];
};

// What products left of the pre-activations of some rows, a vector of each gate: the sums of row i
// and gate j from i * row_stride + j * gate_stride on.
template <class C>
struct GateSums {
  const C* recurrent;
  const C* input;  // or null; the first share of a cell that sees them apart
  int64_t row_stride;
  int64_t gate_stride;

  LLTM_INLINE GateSums from(int64_t row) const {
    const int64_t at = row * row_stride;
    return {recurrent + at, input ? input + at : nullptr, row_stride, gate_stride};
  }
};

// What a product left of the gradient of the hidden state of some rows.
template <class C>
struct GradientSums {
  const C* sums;
  int64_t row_stride;

  LLTM_INLINE GradientSums from(int64_t row) const { return {sums + row * row_stride, row_stride}; }
};

// One vector of the lanes' rows, from what products left to the results in memory.
template <class Gates, class T, class Lanes>
LLTM_INLINE void forward_lanes(const GatesForward<T>& args, int64_t row, int64_t column,
                               const GateSums<compute_t<T>>& sums, Lanes lanes) {
  using V = lanes_t<Lanes, T>;
  constexpr int kStates = Gates::kStates, kGates = Gates::kGates;
  const int64_t width = args.state, saved_width = Gates::kSaved * width;
  V z[Gates::kPre] = {};
#pragma GCC unroll 16
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t at = gate * sums.gate_stride;
    z[Gates::kPre - kGates + gate] = lanes.load_from(sums.recurrent + at, sums.row_stride);
  }
#pragma GCC unroll 16
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t at = gate * sums.gate_stride;
    if (sums.input) z[gate] += lanes.load_from(sums.input + at, sums.row_stride);
  }
#pragma GCC unroll 16
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t at = row * args.z_stride + gate * width + column;
    if (args.z) z[gate] += lanes.load_from(args.z + at, args.z_stride);
  }
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kPre; ++i) {
    if (args.bias) z[i] += lanes.load_from(args.bias + i * width + column, 0);
  }
  const int64_t at = row * width + column;
  V state[kStates];
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    const bool carried = kWidens<T> && i > 0 && args.carry[i];
    state[i] = carried ? lanes.load_from(args.carry[i] + at, width)
                       : lanes.load_from(args.old_state[i] + at, width);
  }
  const StepScalars<T> scalars(args.scalars);
  const auto out = Gates::forward(z, state, scalars.values);
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    const bool carried = kWidens<T> && i > 0 && args.carry[i];
    if (carried) lanes.store_to(args.carry[i] + at, out.state[i], width);
    lanes.store_to(args.new_state[i] + at, out.state[i], width);
  }
  // What was stored, not what was computed: the next step sees what the caller sees.
  if (kWidens<T> && args.h_next) {
    lanes.store_to(args.h_next + at, lanes.load_from(args.new_state[0] + at, width), width);
  }
  if (!args.saved) return;
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kSaved; ++i) {
    const int64_t to = row * saved_width + i * width + column;
    lanes.store_to(args.saved + to, out.saved[i], saved_width);
  }
}

// The gates of some rows from `row` on, after the products.
template <class Gates, class T, class Lanes>
LLTM_SCHEDULED void finish_forward(const GatesForward<T>& args, int64_t row, int64_t rows,
                                   int64_t column, const GateSums<compute_t<T>>& sums,
                                   Lanes lanes) {
  for_each_row(rows, lanes, [&](int64_t i, auto some) __attribute__((always_inline)) {
    forward_lanes<Gates>(args, row + i, column, sums.from(i), some);
  });
}

// One vector of the lanes' rows, from the hidden state's gradient to the pre-activations'.
template <class Gates, class T, class Lanes>
LLTM_INLINE void backward_lanes(const GatesBackward<T>& args, int64_t row, int64_t column,
                                GradientSums<compute_t<T>> product, Lanes lanes) {
  using V = lanes_t<Lanes, T>;
  constexpr int kStates = Gates::kStates, kGates = Gates::kGates;
  const int64_t width = args.state, saved_width = Gates::kSaved * width, z_width = kGates * width;
  const int64_t at = row * width + column;
  const auto load_or_zero = [&](const T* from) __attribute__((always_inline)) {
    return from ? lanes.load_from(from + at, width) : V{};
  };
  V saved[kRoom<Gates::kSaved>];
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kSaved; ++i) {
    const int64_t from = row * saved_width + i * width + column;
    saved[i] = lanes.load_from(args.saved + from, saved_width);
  }
  V grad_h = lanes.load_from(product.sums, product.row_stride);
  if (args.grad_h) grad_h += lanes.load_from(args.grad_h + at, width);
  V old_state[kStates], new_state[kStates], grad[kStates];
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    old_state[i] = load_or_zero(args.old_state[i]);
    new_state[i] = load_or_zero(args.new_state[i]);
    grad[i] = i == 0 ? grad_h : V{};
    if (args.grad_state[i]) grad[i] += lanes.load_from(args.grad_state[i] + at, width);
    if (i >= kFirstPassed && args.carry_in[i]) {
      grad[i] += lanes.load_from(args.carry_in[i] + at, width);
    }
  }
  const StepScalars<T> scalars(args.scalars);
  const auto out = Gates::backward(saved, old_state, new_state, grad, scalars.values);
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kPre; ++i) {
    const int share = i / kGates;
    const int64_t to = row * z_width + i % kGates * width + column;
    T* d_z = args.d_z[share] + to;
    lanes.store_to(d_z, out.d_z[i], z_width);
    if (kWidens<T> && share == kRecurrentShare && args.d_z_next) {
      lanes.store_to(args.d_z_next + to, lanes.load_from(d_z, z_width), z_width);
    }
  }
#pragma GCC unroll 16
  for (int i = kFirstPassed; i < kStates; ++i) {
    if (args.carry_out[i]) lanes.store_to(args.carry_out[i] + at, out.d_state[i], width);
    if (i > 0 && args.d_old_state[i]) {
      lanes.store_to(args.d_old_state[i] + at, out.d_state[i], width);
    }
  }
}

// The same of some rows from `row` on, after the product.
template <class Gates, class T, class Lanes>
LLTM_SCHEDULED void finish_backward(const GatesBackward<T>& args, int64_t row, int64_t rows,
                                    int64_t column, GradientSums<compute_t<T>> product,
                                    Lanes lanes) {
  for_each_row(rows, lanes, [&](int64_t i, auto some) __attribute__((always_inline)) {
    backward_lanes<Gates>(args, row + i, column, product.from(i), some);
  });
}

// Calls body(first row, rows, column, lanes) for the work items of [begin, end): full vectors
// first, then the tail of each stretch.
template <class T, class Body>
LLTM_INLINE void for_each_vector(int64_t rows, int64_t columns, int64_t begin, int64_t end,
                                 const Body& body) {
  const int64_t stretches = (columns + kColumns - 1) / kColumns;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / stretches * kItemRows, count = at_most(kItemRows, rows - row);
    int64_t column = item % stretches * kColumns;
    const int64_t last = at_most(columns, column + kColumns);
    for (; column + kWidth<T> <= last; column += kWidth<T>) body(row, count, column, Full{});
    if (column < last) body(row, count, column, Tail{last - column});
  }
}

// The pre-activations are all in args.z.
template <class Gates, class T>
void gates_forward(const GatesForward<T>& args, int64_t begin, int64_t end) {
  GatesForward<T> rest = args;
  rest.z = nullptr;
  for_each_vector<T>(args.rows, args.state, begin, end,
                     [&](int64_t row, int64_t rows, int64_t column, auto lanes) {
                       const GateSums<compute_t<T>> sums{args.z + row * args.z_stride + column,
                                                         nullptr, args.z_stride, args.state};
                       finish_forward<Gates>(rest, row, rows, column, sums, lanes);
                     });
}

template <class Gates, class T>
void gates_backward(const GatesBackward<T>& args, int64_t begin, int64_t end) {
  const compute_t<T> zeros[kWidth<T>] = {};
  const GradientSums<compute_t<T>> no_product{zeros, 0};
  for_each_vector<T>(args.rows, args.state, begin, end,
                     [&](int64_t row, int64_t rows, int64_t column, auto lanes) {
                       finish_backward<Gates>(args, row, rows, column, no_product, lanes);
                     });
}

// Enough columns at a time to read whole stretches of each row.
constexpr int kSumVectors = 8;

// Rows that are summed before their sum is added as one term, and again: errors grow with the terms
// of each sum.
constexpr int64_t kSumRows = 8, kSumMoreRows = 64;

// The sum of the rows [first, last) of some columns, in terms of `Block` rows each.
template <int64_t Block, class T, int Vectors, class Lanes>
LLTM_INLINE void sum_rows(const ColumnSum<T>& args, int64_t column, Lanes lanes, int64_t first,
                          int64_t last, vector_t<T> (&sums)[Vectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) sums[v] = vector_t<T>{};
  for (; first < last; first += Block) {
    vector_t<T> term[Vectors];
    if constexpr (Block == 1) {
      const T* from = args.values + first * args.columns + column;
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) term[v] = lanes.load_from(from + v * kWidth<T>);
    } else {
      constexpr int64_t smaller = Block == kSumRows ? 1 : kSumRows;
      sum_rows<smaller>(args, column, lanes, first, at_most(last, first + Block), term);
    }
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[v] += term[v];
  }
}

template <class T, int Vectors, class Lanes>
LLTM_INLINE void sum_columns(const ColumnSum<T>& args, int64_t column, Lanes lanes) {
  vector_t<T> sums[Vectors];
  sum_rows<kSumMoreRows>(args, column, lanes, 0, args.rows, sums);
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    lanes.store_to(args.sums + column + v * kWidth<T>, sums[v]);
  }
}

template <class T>
void column_sum(const ColumnSum<T>& args, int64_t begin, int64_t end) {
  constexpr int64_t width = kWidth<T>, panel = kSumVectors * width;
  int64_t column = begin;
  for (; column + panel <= end; column += panel) sum_columns<T, kSumVectors>(args, column, Full{});
  for (; column + width <= end; column += width) sum_columns<T, 1>(args, column, Full{});
  if (column < end) sum_columns<T, 1>(args, column, Tail{end - column});
}

template <class T>
void widen_all(const T* from, compute_t<T>* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load(from + i));
  if (i < count) Tail{count - i}.store_to(to + i, Tail{count - i}.load_from(from + i));
}

template <class T>
void narrow_all(const compute_t<T>* from, T* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load(from + i));
  if (i < count) Tail{count - i}.store_to(to + i, Tail{count - i}.load_from(from + i));
}
