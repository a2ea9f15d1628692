// A matrix in somebody else's memory, with strides, as matmul takes it.
#pragma once

#include <cstdint>

namespace lltm {

template <class T>
struct Matrix {
  T* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride = 1;

  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  // Columns [begin, begin + count).
  Matrix column_range(int64_t begin, int64_t count) const {
    return {data + begin * column_stride, rows, count, row_stride, column_stride};
  }
};

template <class T>
Matrix<T> dense(T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns, columns};
}

}  // namespace lltm
