// Transposition, in blocks of one vector a side. Included like simd.h.
#pragma once

// Every second element of the result is of `a`, from its element First on; the others are of `b`.
template <int First, class V, class Bits, int... I>
LLTM_INLINE V interleave(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int width = sizeof...(I);
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (First + I / 2 + I % 2 * width)...);
#else
  return __builtin_shuffle(a, b, Bits{(First + I / 2 + I % 2 * width)...});
#endif
}

// Interleaving the rows of one half with those of the other, as often as a side can be halved, is
// a transposition.
template <class T, class V = typename VectorOf<T>::type, int kSide = VectorOf<T>::width>
LLTM_INLINE void transpose_vectors(V (&rows)[kSide]) {
  using Bits = typename VectorOf<T>::bits;
  constexpr std::make_integer_sequence<int, kSide> lanes;
#pragma GCC unroll 4
  for (int stage = 1; stage < kSide; stage *= 2) {
    V mixed[kSide];
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      mixed[2 * i] = interleave<0, V, Bits>(rows[i], rows[i + kSide / 2], lanes);
      mixed[2 * i + 1] = interleave<kSide / 2, V, Bits>(rows[i], rows[i + kSide / 2], lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
}

// to[j][i] = from[i][j] for a block of one vector a side.
template <class T>
__attribute__((noinline)) void transpose_block(const T* from, int64_t from_stride, compute_t<T>* to,
                                               int64_t to_stride) {
  vector_t<T> block[kWidth<T>];
#pragma GCC unroll 16
  for (int i = 0; i < kWidth<T>; ++i) block[i] = load(from + i * from_stride);
  transpose_vectors<compute_t<T>>(block);
#pragma GCC unroll 16
  for (int j = 0; j < kWidth<T>; ++j) store(to + j * to_stride, block[j]);
}

// The same where fewer rows or columns are left; to[j][i] = 0 for rows <= i < room.
template <class T>
__attribute__((noinline)) void transpose_rest(const T* from, int64_t from_stride, int64_t rows,
                                              int64_t columns, compute_t<T>* to, int64_t to_stride,
                                              int64_t room) {
  constexpr int64_t side = kWidth<T>;
  const Tail wide{at_most(side, columns)}, high{at_most(side, room)};
  vector_t<T> block[side] = {};
  for (int64_t i = 0; i < at_most(side, rows); ++i) {
    block[i] = wide.load_from(from + i * from_stride);
  }
  transpose_vectors<compute_t<T>>(block);
  for (int64_t j = 0; j < wide.count; ++j) high.store_to(to + j * to_stride, block[j]);
}

// to[j][i] = from[i][j] for i < rows, j < columns; to[j][i] = 0 for rows <= i < room.
template <class T>
void transpose_into(const T* from, int64_t from_stride, int64_t rows, int64_t columns,
                    compute_t<T>* to, int64_t to_stride, int64_t room) {
  constexpr int64_t side = kWidth<T>;
  for (int64_t i = 0; i < room; i += side) {
    for (int64_t j = 0; j < columns; j += side) {
      const T* block = from + i * from_stride + j;
      compute_t<T>* transposed = to + j * to_stride + i;
      if (i + side <= rows && j + side <= columns) {
        transpose_block(block, from_stride, transposed, to_stride);
      } else {
        transpose_rest(block, from_stride, rows - i, columns - j, transposed, to_stride, room - i);
      }
    }
  }
}
