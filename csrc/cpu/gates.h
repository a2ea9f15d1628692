// The gate kernels, over any gate functor. Included like simd.h.
#pragma once

template <class Gates, class T, class Lanes>
LLTM_INLINE void forward_vector(const GatesForward<T>& args, int64_t row, int64_t column,
                                Lanes lanes) {
  using V = vector_t<T>;
  constexpr int kGates = Gates::kGates;
  V z[kGates];
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t at = gate * args.state + column;
    const int64_t offset = row * kGates * args.state + at;
    z[gate] = lanes.load_from(args.z_input + offset);
    if (args.z_state) z[gate] += lanes.load_from(args.z_state + offset);
    if (args.bias) z[gate] += lanes.load_from(args.bias + at);
  }
  const int64_t at = row * args.state + column;
  const auto out = Gates::forward(z, lanes.load_from(args.old_cell + at),
                                  static_cast<compute_t<T>>(args.alpha));
  lanes.store_to(args.new_h + at, out.new_h);
  lanes.store_to(args.new_cell + at, out.new_cell);
  if (!args.gates) return;
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    lanes.store_to(args.gates + (row * kGates + gate) * args.state + column, out.saved[gate]);
  }
}

template <class Gates, class T, class Lanes>
LLTM_INLINE void backward_vector(const GatesBackward<T>& args, int64_t row, int64_t column,
                                 Lanes lanes) {
  using V = vector_t<T>;
  constexpr int kGates = Gates::kGates;
  V saved[kGates];
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    saved[gate] = lanes.load_from(args.gates + (row * kGates + gate) * args.state + column);
  }
  const int64_t at = row * args.state + column;
  V grad_h = {};
  if (args.grad_h) grad_h += lanes.load_from(args.grad_h + at);
  if (args.grad_h_next) grad_h += lanes.load_from(args.grad_h_next + at);
  V grad_cell = {};
  if (args.grad_cell) grad_cell += lanes.load_from(args.grad_cell + at);
  if (args.carry_in) grad_cell += lanes.load_from(args.carry_in + at);
  const auto out = Gates::backward(saved, lanes.load_from(args.new_cell + at), grad_h, grad_cell,
                                   static_cast<compute_t<T>>(args.alpha));
#pragma GCC unroll 4
  for (int gate = 0; gate < kGates; ++gate) {
    lanes.store_to(args.d_z + (row * kGates + gate) * args.state + column, out.d_z[gate]);
  }
  if (args.carry_out) lanes.store_to(args.carry_out + at, out.d_old_cell);
  if (args.d_old_cell) lanes.store_to(args.d_old_cell + at, out.d_old_cell);
}

// Walks the work items of [begin, end): full vectors first, then the tail of each stretch.
template <class T, class Args, class OnFull, class OnTail>
LLTM_INLINE void for_each_vector(const Args& args, int64_t begin, int64_t end, OnFull on_full,
                                 OnTail on_tail) {
  const int64_t stretches = (args.state + kColumns - 1) / kColumns;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / stretches;
    int64_t column = (item % stretches) * kColumns;
    const int64_t last = column + kColumns < args.state ? column + kColumns : args.state;
    for (; column + kWidth<T> <= last; column += kWidth<T>) on_full(args, row, column, Full{});
    if (column < last) on_tail(args, row, column, Tail{last - column});
  }
}

template <class Gates, class T>
void gates_forward(const GatesForward<T>& args, int64_t begin, int64_t end) {
  for_each_vector<T>(args, begin, end, forward_vector<Gates, T, Full>, forward_vector<Gates, T, Tail>);
}

template <class Gates, class T>
void gates_backward(const GatesBackward<T>& args, int64_t begin, int64_t end) {
  for_each_vector<T>(args, begin, end, backward_vector<Gates, T, Full>,
                     backward_vector<Gates, T, Tail>);
}

template <class T, class Lanes>
LLTM_INLINE void sum_columns(const ColumnSum<T>& args, int64_t column, Lanes lanes) {
  vector_t<T> sum = {};
  for (int64_t row = 0; row < args.rows; ++row) {
    sum += lanes.load_from(args.values + row * args.columns + column);
  }
  lanes.store_to(args.sums + column, sum);
}

template <class T>
void column_sum(const ColumnSum<T>& args, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kWidth<T> <= end; column += kWidth<T>) sum_columns(args, column, Full{});
  if (column < end) sum_columns(args, column, Tail{end - column});
}

template <class T>
constexpr Kernels<T> kernels_of() {
  using Gates = LltmGates<VectorMath>;
  return {gates_forward<Gates, T>, gates_backward<Gates, T>, column_sum<T>};
}
