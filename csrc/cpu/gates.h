// The gate kernels, over any gate functor. Included like simd.h.
#pragma once

// One vector of one row, from the pre-activations' share in z to the results in memory.
template <class Gates, class T, class Lanes>
void finish_forward(const GatesForward<T>& args, int64_t row, int64_t column,
                    vector_t<T> (&z)[Gates::kGates], Lanes lanes) {
  constexpr int kGates = Gates::kGates;
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t at = gate * args.state + column;
    if (args.z) z[gate] += lanes.load_from(args.z + row * kGates * args.state + at);
    if (args.bias) z[gate] += lanes.load_from(args.bias + at);
  }
  const int64_t at = row * args.state + column;
  const vector_t<T> old_cell =
      args.carry ? lanes.load_from(args.carry + at) : lanes.load_from(args.old_cell + at);
  const auto out = Gates::forward(z, old_cell, static_cast<compute_t<T>>(args.alpha));
  if (args.carry) lanes.store_to(args.carry + at, out.new_cell);
  lanes.store_to(args.new_h + at, out.new_h);
  lanes.store_to(args.new_cell + at, out.new_cell);
  // What was stored, not what was computed: the next step sees what the caller sees.
  if (args.h_next) lanes.store_to(args.h_next + at, lanes.load_from(args.new_h + at));
  if (!args.gates) return;
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    lanes.store_to(args.gates + (row * kGates + gate) * args.state + column, out.saved[gate]);
  }
}

// One vector of one row, from the hidden state's gradient to the pre-activations'.
template <class Gates, class T, class Lanes>
void finish_backward(const GatesBackward<T>& args, int64_t row, int64_t column, vector_t<T> grad_h,
                     Lanes lanes) {
  using V = vector_t<T>;
  constexpr int kGates = Gates::kGates;
  V saved[kGates];
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    saved[gate] = lanes.load_from(args.gates + (row * kGates + gate) * args.state + column);
  }
  const int64_t at = row * args.state + column;
  if (args.grad_h) grad_h += lanes.load_from(args.grad_h + at);
  if (args.grad_h_extra) grad_h += lanes.load_from(args.grad_h_extra + at);
  V grad_cell = {};
  if (args.grad_cell) grad_cell += lanes.load_from(args.grad_cell + at);
  if (args.carry_in) grad_cell += lanes.load_from(args.carry_in + at);
  const auto out = Gates::backward(saved, lanes.load_from(args.new_cell + at), grad_h, grad_cell,
                                   static_cast<compute_t<T>>(args.alpha));
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t to = (row * kGates + gate) * args.state + column;
    lanes.store_to(args.d_z + to, out.d_z[gate]);
    if (args.d_z_next) lanes.store_to(args.d_z_next + to, lanes.load_from(args.d_z + to));
  }
  if (args.carry_out) lanes.store_to(args.carry_out + at, out.d_old_cell);
  if (args.d_old_cell) lanes.store_to(args.d_old_cell + at, out.d_old_cell);
}

// Walks the work items of [begin, end): full vectors first, then the tail of each stretch.
template <class T, class Body>
LLTM_INLINE void for_each_vector(int64_t columns, int64_t begin, int64_t end, const Body& body) {
  const int64_t stretches = (columns + kColumns - 1) / kColumns;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / stretches;
    int64_t column = (item % stretches) * kColumns;
    const int64_t last = column + kColumns < columns ? column + kColumns : columns;
    for (; column + kWidth<T> <= last; column += kWidth<T>) body.run(row, column, Full{});
    if (column < last) body.run(row, column, Tail{last - column});
  }
}

template <class Gates, class T>
struct ForwardVector {
  const GatesForward<T>& args;

  template <class Lanes>
  LLTM_INLINE void run(int64_t row, int64_t column, Lanes lanes) const {
    vector_t<T> z[Gates::kGates] = {};
    finish_forward<Gates>(args, row, column, z, lanes);
  }
};

template <class Gates, class T>
void gates_forward(const GatesForward<T>& args, int64_t begin, int64_t end) {
  for_each_vector<T>(args.state, begin, end, ForwardVector<Gates, T>{args});
}

template <class Gates, class T>
struct BackwardVector {
  const GatesBackward<T>& args;

  template <class Lanes>
  LLTM_INLINE void run(int64_t row, int64_t column, Lanes lanes) const {
    finish_backward<Gates>(args, row, column, vector_t<T>{}, lanes);
  }
};

template <class Gates, class T>
void gates_backward(const GatesBackward<T>& args, int64_t begin, int64_t end) {
  for_each_vector<T>(args.state, begin, end, BackwardVector<Gates, T>{args});
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
