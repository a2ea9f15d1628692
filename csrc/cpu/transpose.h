// Transposition, in blocks of 16 bytes a side. Included like simd.h.
#pragma once

typedef float Float4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));

#if defined(__clang__)
#define LLTM_SHUFFLE4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#define LLTM_SHUFFLE2(a, b, i, j) __builtin_shufflevector(a, b, i, j)
#else
typedef int32_t Index4 __attribute__((vector_size(16)));
typedef int64_t Index2 __attribute__((vector_size(16)));
#define LLTM_SHUFFLE4(a, b, i, j, k, l) __builtin_shuffle(a, b, Index4{i, j, k, l})
#define LLTM_SHUFFLE2(a, b, i, j) __builtin_shuffle(a, b, Index2{i, j})
#endif

template <class T>
constexpr int64_t kTransposeBlock = 16 / sizeof(T);

// to[j][i] = from[i][j] for a block.
LLTM_INLINE void transpose_block(const float* from, int64_t from_stride, float* to,
                                 int64_t to_stride) {
  const auto r0 = load_bytes<Float4>(from), r1 = load_bytes<Float4>(from + from_stride);
  const auto r2 = load_bytes<Float4>(from + 2 * from_stride);
  const auto r3 = load_bytes<Float4>(from + 3 * from_stride);
  const Float4 low01 = LLTM_SHUFFLE4(r0, r1, 0, 4, 1, 5), low23 = LLTM_SHUFFLE4(r2, r3, 0, 4, 1, 5);
  const Float4 high01 = LLTM_SHUFFLE4(r0, r1, 2, 6, 3, 7);
  const Float4 high23 = LLTM_SHUFFLE4(r2, r3, 2, 6, 3, 7);
  const Float4 columns[] = {
      LLTM_SHUFFLE4(low01, low23, 0, 1, 4, 5), LLTM_SHUFFLE4(low01, low23, 2, 3, 6, 7),
      LLTM_SHUFFLE4(high01, high23, 0, 1, 4, 5), LLTM_SHUFFLE4(high01, high23, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * to_stride, &columns[i], sizeof(Float4));
}

LLTM_INLINE void transpose_block(const double* from, int64_t from_stride, double* to,
                                 int64_t to_stride) {
  const auto r0 = load_bytes<Double2>(from), r1 = load_bytes<Double2>(from + from_stride);
  const Double2 columns[] = {LLTM_SHUFFLE2(r0, r1, 0, 2), LLTM_SHUFFLE2(r0, r1, 1, 3)};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) __builtin_memcpy(to + i * to_stride, &columns[i], sizeof(Double2));
}

// to[j][i] = from[i][j] for i < rows, j < columns; to[j][i] = 0 for rows <= i < room.
template <class T>
void transpose_into(const T* from, int64_t from_stride, int64_t rows, int64_t columns,
                    compute_t<T>* to, int64_t to_stride, int64_t room) {
  constexpr int64_t block = kTransposeBlock<compute_t<T>>;
  const int64_t whole = rows / block * block;
  for (int64_t i = 0; i < whole; i += block) {
    int64_t j = 0;
    if constexpr (sizeof(T) == sizeof(compute_t<T>)) {
      for (; j + block <= columns; j += block) {
        transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
      }
    }
    for (; j < columns; ++j) {
      for (int64_t l = i; l < i + block; ++l) {
        to[j * to_stride + l] = scalar(from[l * from_stride + j]);
      }
    }
  }
  for (int64_t i = whole; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = scalar(from[i * from_stride + j]);
  }
  for (int64_t i = rows; i < room; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = compute_t<T>(0);
  }
}
