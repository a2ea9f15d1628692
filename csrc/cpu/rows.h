// Rows whose gates are computed together. Included like simd.h.
#pragma once

// The same full vector of two rows.
struct TwoRows {
  template <class T>
  LLTM_INLINE Pair<vector_t<T>> load_from(const T* from, int64_t row_stride) const {
    return {load(from), load(from + row_stride)};
  }
  template <class T>
  LLTM_INLINE void store_to(T* to, Pair<vector_t<T>> x, int64_t row_stride) const {
    store(to, x.first);
    store(to + row_stride, x.second);
  }
};

// What some lanes of an array of T hold.
template <class Lanes, class T>
using lanes_t = decltype(Lanes{}.load_from(static_cast<const T*>(nullptr), 0));

// Processors without a multiply-add are too old to be worth a second copy of the gates.
constexpr bool kTwoRows = kHasFma;

// Two rows at a time, and the last of an odd number by itself; a part of a vector always by itself.
template <class Body>
LLTM_INLINE void for_each_row(int64_t rows, Full one, const Body& body) {
  int64_t row = 0;
  if constexpr (kTwoRows) {
    for (; row + 2 <= rows; row += 2) body.run(row, TwoRows{});
  }
  for (; row < rows; ++row) body.run(row, one);
}
template <class Body>
LLTM_INLINE void for_each_row(int64_t rows, Tail one, const Body& body) {
  for (int64_t row = 0; row < rows; ++row) body.run(row, one);
}

// The first vector of `states` states, or the part of one that they are.
template <class T, class Body>
LLTM_INLINE void for_each_row(int64_t rows, int64_t states, const Body& body) {
  if (states >= kWidth<T>) {
    for_each_row(rows, Full{}, body);
  } else {
    for_each_row(rows, Tail{states}, body);
  }
}
