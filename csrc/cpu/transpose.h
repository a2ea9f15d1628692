// Transposition, in blocks of one vector a side. Included like simd.h.
#pragma once

// In each group of Side elements, every second of the result is of `a`, from the group's element
// First on; the others are of `b`.
template <int Side, int First, class V, class Bits, int... I>
LLTM_INLINE V interleave(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int width = sizeof...(I);
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (I / Side * Side + First + I % Side / 2 + I % 2 * width)...);
#else
  return __builtin_shuffle(a, b, Bits{(I / Side * Side + First + I % Side / 2 + I % 2 * width)...});
#endif
}

// Interleaving the rows of one half with those of the other, as often as a side can be halved, is
// a transposition; of several blocks beside each other, where a vector is longer than a side.
template <class T, class V = typename VectorOf<T>::type, int kSide>
LLTM_INLINE void transpose_vectors(V (&rows)[kSide]) {
  using Bits = typename VectorOf<T>::bits;
  constexpr std::make_integer_sequence<int, VectorOf<T>::width> lanes;
#pragma GCC unroll 4
  for (int stage = 1; stage < kSide; stage *= 2) {
    V mixed[kSide];
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      const V low = rows[i], high = rows[i + kSide / 2];
      mixed[2 * i] = interleave<kSide, 0, V, Bits>(low, high, lanes);
      mixed[2 * i + 1] = interleave<kSide, kSide / 2, V, Bits>(low, high, lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
}

#if defined(__x86_64__) && LLTM_VECTOR_BYTES == 32
// Two halves of a vector from memory: the rows of a block's halves meet in their loads, so that no
// instruction has to move elements from one half of a register to the other.
constexpr bool kLoadsHalves = true;
LLTM_INLINE VFloat load_halves(const float* low, const float* high) {
  const __m256 first = _mm256_castps128_ps256(_mm_loadu_ps(low));
  return (VFloat)_mm256_insertf128_ps(first, _mm_loadu_ps(high), 1);
}
LLTM_INLINE VDouble load_halves(const double* low, const double* high) {
  const __m256d first = _mm256_castpd128_pd256(_mm_loadu_pd(low));
  return (VDouble)_mm256_insertf128_pd(first, _mm_loadu_pd(high), 1);
}
#else
constexpr bool kLoadsHalves = false;
#endif

// to[j][i] = from[i][j] for a block of one vector a side.
template <class T>
__attribute__((noinline)) void transpose_block(const T* from, int64_t from_stride, compute_t<T>* to,
                                               int64_t to_stride) {
  constexpr int side = kWidth<T>;
  // Vectors of a pass, and columns that it reads of each row.
  constexpr int pass = kLoadsHalves && std::is_same_v<T, compute_t<T>> ? side / 2 : side;
#pragma GCC unroll 2
  for (int first = 0; first < side; first += pass) {
    vector_t<T> block[pass];
#pragma GCC unroll 16
    for (int i = 0; i < pass; ++i) {
      const T* row = from + i * from_stride + first;
      if constexpr (pass < side) {
        block[i] = load_halves(row, row + pass * from_stride);
      } else {
        block[i] = load(row);
      }
    }
    transpose_vectors<compute_t<T>>(block);
#pragma GCC unroll 16
    for (int j = 0; j < pass; ++j) store(to + (first + j) * to_stride, block[j]);
  }
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
