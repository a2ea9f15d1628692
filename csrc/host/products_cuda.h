// The products around the gates on CUDA arrays, cell and sequence alike.
#pragma once

#include <optional>

#include "../cuda/kernels.h"
#include "matrix.h"
#include "passes.h"

namespace lltm {

// Device memory for `count` values of V, and where it begins.
template <class Api, class V>
struct DeviceScratch {
  typename Api::Tensor tensor;

  DeviceScratch(const typename Api::Tensor& like, int64_t count)
      : tensor(Api::template scratch<V>(like, count)) {}
  V* data() const { return static_cast<V*>(tensor.mutable_data_ptr()); }
};

// The state's weights as one matrix [GS, S]: where they are, or, of several heads, with zeros
// between the heads' blocks. One product with zeros is faster than one for each head and gate; a
// nan in a head reaches the other heads of its row.
template <class Api, class T>
class StateWeights {
 public:
  using Tensor = typename Api::Tensor;

  // The rows of `weights` are `stride` apart.
  StateWeights(const typename Api::Queue& queue, const T* weights, int64_t stride,
               const CellSizes& sizes, const Tensor& like)
      : matrix_{weights, sizes.gates(), sizes.head(), stride} {
    if (sizes.heads == 1) return;
    expanded_.emplace(like, sizes.gates() * sizes.state);
    cuda::expand_heads<T>(
        {sizes.gates(), sizes.state, sizes.head(), weights, stride, expanded_->data()},
        queue.stream());
    matrix_ = dense<const T>(expanded_->data(), sizes.gates(), sizes.state);
  }

  const Matrix<const T>& matrix() const { return matrix_; }

 private:
  Matrix<const T> matrix_;
  std::optional<DeviceScratch<Api, T>> expanded_;
};

// sums = the sum of values [rows, columns] over its rows.
template <class Api, class T>
void column_sum_cuda(const typename Api::Queue& queue, const T* values, int64_t rows,
                     int64_t columns, T* sums, const typename Api::Tensor& like) {
  using V = cuda::compute_t<T>;
  const DeviceScratch<Api, V> partials(like, cuda::column_sum_partials(rows) * columns);
  cuda::column_sum<T>({rows, columns, values, sums, partials.data()}, queue.stream());
}

// The recurrent columns of d_weights = d_z.T h, of which several heads keep their blocks.
template <class Api, class T>
void recurrent_weight_gradient(const typename Api::Queue& queue, const CellSizes& sizes,
                               const Matrix<const T>& d_z, const T* h, T* d_weights,
                               const typename Api::Tensor& like) {
  const auto steps = dense(h, d_z.rows, sizes.state);
  const auto to = dense(d_weights, sizes.gates(), sizes.width()).column_range(0, sizes.head());
  if (sizes.heads == 1) return Api::matmul(queue, to, d_z.transposed(), steps);
  const DeviceScratch<Api, T> full(like, sizes.gates() * sizes.state);
  Api::matmul(queue, dense(full.data(), sizes.gates(), sizes.state), d_z.transposed(), steps);
  cuda::gather_heads<T>(
      {sizes.gates(), sizes.state, sizes.head(), full.data(), d_weights, sizes.width()},
      queue.stream());
}

// What the rows of a pass have in common: `rows` of d_z, the h before each and the input.
template <class T>
struct CudaWeightGradient {
  int64_t rows;  // T * B
  CellSizes sizes;
  const T* d_z[kShares] = {};  // [rows, GS] of each share
  cuda::Concatenate<T> x;      // without `x`, and without `input` where it is apart
  const T* input = nullptr;    // [rows, F]
  T* d_weights = nullptr;      // [GS, S / H + F]
};

template <class Api, class T>
void weight_gradient_cuda(const typename Api::Queue& queue, CudaWeightGradient<T> args,
                          const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes;
  const auto d_weights = dense(args.d_weights, sizes.gates(), sizes.width());
  const auto d_z = [&](int share) { return dense(args.d_z[share], args.rows, sizes.gates()); };
  if (args.rows == 0) {
    return cuda::clear(args.d_weights, sizes.gates() * sizes.width() * sizeof(T), queue.stream());
  }
  const bool together = sizes.heads == 1 && !Cell::kSplit;
  args.x.input = args.input;
  args.x.features = together ? sizes.features : 0;
  const int64_t width = sizes.state + args.x.features;
  const DeviceScratch<Api, T> x(like, args.rows * width);
  args.x.x = x.data();
  cuda::concatenate(args.x, queue.stream());
  if (together) {
    return Api::matmul(queue, d_weights, d_z(0).transposed(),
                       dense<const T>(x.data(), args.rows, width));
  }
  Api::matmul(queue, d_weights.column_range(sizes.head(), sizes.features), d_z(0).transposed(),
              dense(args.input, args.rows, sizes.features));
  recurrent_weight_gradient<Api, T>(queue, sizes, d_z(kRecurrentShare), x.data(), args.d_weights,
                                    like);
}

// d_input and d_bias from d_z; `rows` are T * B.
template <class Api, class T>
void input_and_bias_gradients(const typename Api::Queue& queue, int64_t rows,
                              const CellSizes& sizes, T* const (&d_z)[kShares], const T* weights,
                              const ParameterGradients<T>& d, const typename Api::Tensor& like) {
  const int64_t gates = sizes.gates();
  if (d.input) {
    Api::matmul(queue, dense(d.input, rows, sizes.features), dense<const T>(d_z[0], rows, gates),
                dense(weights, gates, sizes.width()).column_range(sizes.head(), sizes.features));
  }
  for (int share = 0; d.bias && share < kShares; ++share) {
    column_sum_cuda<Api, T>(queue, d_z[share], rows, gates, d.bias + share * gates, like);
  }
}

}  // namespace lltm
