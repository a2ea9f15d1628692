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

// Scheduled before registers are given out, too, which puts the longest chain of the functions
// first. Of the products that makes slower ones.
#if defined(__GNUC__) && !defined(__clang__)
#define LLTM_SCHEDULED __attribute__((noinline, optimize("schedule-insns", "sched-pressure")))
#else
#define LLTM_SCHEDULED __attribute__((noinline))
#endif

// Calls body(row, lanes) for two rows at a time, and for the last of an odd number by itself; for a
// part of a vector always by itself.
template <class Body>
LLTM_INLINE void for_each_row(int64_t rows, Full one, const Body& body) {
  int64_t row = 0;
  if constexpr (kTwoRows) {
    for (; row + 2 <= rows; row += 2) body(row, TwoRows{});
  }
  for (; row < rows; ++row) body(row, one);
}
template <class Body>
LLTM_INLINE void for_each_row(int64_t rows, Tail one, const Body& body) {
  for (int64_t row = 0; row < rows; ++row) body(row, one);
}

// Calls body(lanes) with the first vector of `states` states, or the part of one that they are.
template <class T, class Body>
LLTM_INLINE void with_lanes(int64_t states, const Body& body) {
  if (states >= kWidth<T>) {
    body(Full{});
  } else {
    body(Tail{states});
  }
}
