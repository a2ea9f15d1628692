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

// One vector of one row, from the pre-activations' shares in z to the results in memory.
template <class Gates, class T, class Lanes>
void finish_forward(const GatesForward<T>& args, int64_t row, int64_t column,
                    vector_t<T> (&z)[Gates::kPre], Lanes lanes) {
  constexpr int kStates = Gates::kStates;
#pragma GCC unroll 16
  for (int gate = 0; gate < Gates::kGates; ++gate) {
    const int64_t at = gate * args.state + column;
    if (args.z) z[gate] += lanes.load_from(args.z + row * args.z_stride + at);
  }
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kPre; ++i) {
    if (args.bias) z[i] += lanes.load_from(args.bias + i * args.state + column);
  }
  const int64_t at = row * args.state + column;
  vector_t<T> state[kStates];
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    state[i] = i > 0 && args.carry[i] ? lanes.load_from(args.carry[i] + at)
                                      : lanes.load_from(args.old_state[i] + at);
  }
  const StepScalars<T> scalars(args.scalars);
  const auto out = Gates::forward(z, state, scalars.values);
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    if (i > 0 && args.carry[i]) lanes.store_to(args.carry[i] + at, out.state[i]);
    lanes.store_to(args.new_state[i] + at, out.state[i]);
  }
  // What was stored, not what was computed: the next step sees what the caller sees.
  if (args.h_next) lanes.store_to(args.h_next + at, lanes.load_from(args.new_state[0] + at));
  if (!args.saved) return;
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kSaved; ++i) {
    lanes.store_to(args.saved + (row * Gates::kSaved + i) * args.state + column, out.saved[i]);
  }
}

template <class T, class Lanes>
LLTM_INLINE vector_t<T> load_or_zero(const T* from, int64_t at, Lanes lanes) {
  return from ? lanes.load_from(from + at) : vector_t<T>{};
}

// One vector of one row, from the hidden state's gradient to the pre-activations'.
template <class Gates, class T, class Lanes>
void finish_backward(const GatesBackward<T>& args, int64_t row, int64_t column, vector_t<T> grad_h,
                     Lanes lanes) {
  using V = vector_t<T>;
  constexpr int kStates = Gates::kStates, kGates = Gates::kGates;
  const int64_t at = row * args.state + column;
  V saved[kRoom<Gates::kSaved>];
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kSaved; ++i) {
    saved[i] = lanes.load_from(args.saved + (row * Gates::kSaved + i) * args.state + column);
  }
  if (args.grad_h) grad_h += lanes.load_from(args.grad_h + at);
  V old_state[kStates], new_state[kStates], grad[kStates];
#pragma GCC unroll 16
  for (int i = 0; i < kStates; ++i) {
    old_state[i] = load_or_zero(args.old_state[i], at, lanes);
    new_state[i] = load_or_zero(args.new_state[i], at, lanes);
    grad[i] = i == 0 ? grad_h : V{};
    if (args.grad_state[i]) grad[i] += lanes.load_from(args.grad_state[i] + at);
    if (i >= kFirstPassed && args.carry_in[i]) grad[i] += lanes.load_from(args.carry_in[i] + at);
  }
  const StepScalars<T> scalars(args.scalars);
  const auto out = Gates::backward(saved, old_state, new_state, grad, scalars.values);
#pragma GCC unroll 32
  for (int i = 0; i < Gates::kPre; ++i) {
    const int share = i / kGates;
    const int64_t to = (row * kGates + i % kGates) * args.state + column;
    lanes.store_to(args.d_z[share] + to, out.d_z[i]);
    if (share == kRecurrentShare && args.d_z_next) {
      lanes.store_to(args.d_z_next + to, lanes.load_from(args.d_z[share] + to));
    }
  }
#pragma GCC unroll 16
  for (int i = kFirstPassed; i < kStates; ++i) {
    if (args.carry_out[i]) lanes.store_to(args.carry_out[i] + at, out.d_state[i]);
    if (i > 0 && args.d_old_state[i]) lanes.store_to(args.d_old_state[i] + at, out.d_state[i]);
  }
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
    vector_t<T> z[Gates::kPre] = {};
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

template <class T>
void narrow_all(const compute_t<T>* from, T* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) store(to + i, load(from + i));
  if (i < count) Tail{count - i}.store_to(to + i, Tail{count - i}.load_from(from + i));
}
