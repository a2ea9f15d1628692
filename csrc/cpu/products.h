// The CPU kernels that do not depend on a cell: products, and what packs for them. As kernels.h
// says of all.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bf16_tiles.h"
#include "types.h"

namespace lltm::cpu {

// Rows against packed weights: [head][panel][k][gate][column], in panels of states.
template <class T>
struct PackedProduct {
  const compute_t<T>* rows;    // [rows, heads * depth], or [rows, depth] that all heads read
  const compute_t<T>* packed;  // as pack_forward makes it of each head
  int64_t depth;
};

// weights[:, :depth] against `rows` rows of x, then the gates, with the weights read as they are:
// for a single step, where packing them costs more than it saves. A work item is a vector of
// states, as above.
template <class X>
struct DirectProduct {
  const X* x;        // [rows, depth], or [depth, rows] with rows padded by zeros to x_stride
  int64_t x_stride;  // between two rows of x
  const X* weights;  // [GS, depth]
  int64_t weights_stride;
  int64_t gate_rows;  // S: between the first rows of two gates
  int64_t depth;
};

// One head's weights.
template <class T>
struct Pack {
  const T* weights;  // [GS, columns] with row_stride, from the head's first row on
  int64_t row_stride;
  int64_t gate_rows;  // S: between the first rows of two gates
  int64_t state;      // S / H
  int64_t columns;    // S / H, or F for the input's share
  compute_t<T>* packed;
};

// c = a b for few rows of a or few terms, with both read where they are: rows of b contiguous, a
// may be transposed. A work item is kProductVectors of columns.
template <class T>
struct Product {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const T* a;  // [rows, depth]
  int64_t a_row_stride;
  int64_t a_column_stride;
  const T* b;  // [depth, columns]
  int64_t b_row_stride;
  T* c;  // [rows, columns]
  int64_t c_row_stride;
  bool is_b_cached;  // in a core's own cache, where it may be read in any order
};

// An a that is not transposed is read where it is, from half of a second-level cache, and half a
// megabyte of it at most: rows at strides of a power of two or nearly reach only part of a cache,
// and a full megabyte was read again from behind a cache of two.
constexpr int64_t kMaxRowMajorBytes = 1 << 19;

// Terms of a product's sums whose operands are in the caches at a time.
constexpr int64_t kDepthBlock = 256;

// Terms of a sum over all steps that are summed before their sum is added as one term. Errors grow
// with the terms of a block and with the blocks, and short blocks cost time. With these such a sum
// is as right as eager's, which adds one short sum a step.
constexpr int64_t steps_sum_block(int64_t terms) { return terms <= 256 ? 16 : 32; }

// c = a b for matrices of any size; each operand row-major or transposed. A work item
// is a panel of product columns against row_block rows.
template <class T>
struct MatrixProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const T* a;  // [rows, depth]
  int64_t a_row_stride;
  int64_t a_column_stride;
  const T* b;  // [depth, columns]
  int64_t b_row_stride;
  int64_t b_column_stride;
  T* c;  // [rows, columns]
  int64_t c_row_stride;
  int64_t sum_block;  // terms that are summed before they are added as one, at most kDepthBlock
  int64_t row_block;  // at most transposed_rows of the kernel where a is; no sum depends on it

  int64_t row_blocks() const { return (rows + row_block - 1) / row_block; }
};

// c = a b for 16-bit operands, summed in float and rounded once. Each operand is row-major or
// transposed. A work item is a block of c.
template <class T>
struct MixedProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const T* a;  // [rows, depth]
  int64_t a_row_stride;
  int64_t a_column_stride;
  const T* b;  // [depth, columns]
  int64_t b_row_stride;
  int64_t b_column_stride;
  T* c;           // [rows, columns], or null
  float* wide_c;  // the same where it is wanted as it was summed, or null
  int64_t c_row_stride;

  int64_t row_block;  // those of the kernel
  int64_t column_block;

  int64_t column_blocks() const { return (columns + column_block - 1) / column_block; }
  int64_t blocks() const { return (rows + row_block - 1) / row_block * column_blocks(); }
};

// Rest --------------------------------------------------------------------------------------------

// sums[j] = sum over rows of values[row, j], for the columns [begin, end); in the compute type, in
// an order that depends on the number of rows alone.
template <class T>
struct ColumnSum {
  int64_t rows;
  int64_t columns;
  const T* values;  // [rows, columns]
  T* sums;          // [columns]
};

// to [columns, to_stride] = from [rows, columns] transposed, the rest of each row of `to` zero.
template <class T>
struct Transpose {
  int64_t rows;
  int64_t columns;
  const T* from;
  compute_t<T>* to;
  int64_t to_stride;
};

// What only the types that are computed in have: products.
template <class T>
struct ProductKernels {
  void (*product)(const Product<T>&, int64_t begin, int64_t end);
  int64_t few_rows;  // of a batch, up to which `product` is faster than `matmul`
  void (*matmul)(const MatrixProduct<T>&, int64_t begin, int64_t end);
  int64_t transposed_rows;  // of a transposed a at a time
};

template <class T>
struct MixedKernels {
  void (*product)(const MixedProduct<T>&, int64_t begin, int64_t end);
  int64_t row_block;
  int64_t column_block;
};

constexpr int64_t kTileDepth = bf16::kDepth;

struct TilePack {
  const BFloat16* weights;  // [GS, columns] with row_stride
  int64_t row_stride;
  int64_t state;    // S
  int64_t columns;  // S
  BFloat16* packed;
};

// Vectors in a panel.
template <int Gates>
constexpr int kForwardVectors = Gates == 1 ? 3 : 1;  // of each gate
constexpr int64_t kBackwardVectors = 3;
constexpr int64_t kProductVectors = 3;

// Columns in panels of three vectors, the last one or two of them of two: a tile of a single vector
// waits for its broadcasts, so none is left alone that could go with others.
struct UnevenPanels {
  int64_t vectors;

  UnevenPanels(int64_t columns, int64_t width) : vectors((columns + width - 1) / width) {}
  int64_t count() const { return (vectors + 2) / 3; }
  int64_t first(int64_t panel) const {  // vector
    return 2 * panel + (panel < threes() ? panel : threes());
  }
  int64_t size(int64_t panel) const {  // vectors
    return panel < threes() ? 3 : vectors < 2 ? vectors : 2;
  }

 private:
  int64_t threes() const { return vectors < 2 ? 0 : vectors - 2 * count(); }
};

// A vector of columns in each panel.
struct EvenPanels {
  int64_t vectors;

  EvenPanels(int64_t columns, int64_t width) : vectors((columns + width - 1) / width) {}
  int64_t count() const { return vectors; }
  int64_t first(int64_t panel) const { return panel; }
  int64_t size(int64_t) const { return 1; }
};

// The states of a forward step: a vector of each gate is enough for a tile, unless there is one.
template <int Gates>
using ForwardPanels = std::conditional_t<Gates == 1, UnevenPanels, EvenPanels>;

}  // namespace lltm::cpu
