// One step on CPU tensors: check, allocate, multiply, gates.
//
// Most steps read the weights where they are and need no concatenation.
#pragma once

#include <optional>
#include <tuple>

#include "../contract.h"
#include "dispatch.h"
#include "matrix.h"
#include "memory.h"
#include "parallel.h"
#include "passes.h"
#include "scratch.h"
#include "widened.h"

namespace lltm {

constexpr int64_t kFewRows = 4;

// Weights that stay in a core's own cache while they are used.
constexpr int64_t kCachedBytes = 1 << 20;

template <class T>
bool has_cached_weights(const CellSizes& sizes) {
  const int64_t weights = sizes.gates() * sizes.width();
  return weights * static_cast<int64_t>(sizeof(cpu::compute_t<T>)) <= kCachedBytes;
}

inline int64_t padded(int64_t rows, int64_t block) { return (rows + block - 1) / block * block; }

// Up to here widening a 16-bit type costs less than it takes to get through to BLAS.
constexpr int64_t kWidenedRows = 16;

template <class T>
bool is_worth_widening(const CellSizes& sizes) {
  return sizes.batch <= kWidenedRows && has_cached_weights<T>(sizes);
}

// Forward reads the weights in place for a few rows, and for more where they fill three quarters of
// their vectors.
template <class T>
bool is_forward_direct(const CellSizes& sizes) {
  if (!is_compute_type_v<T> && !is_worth_widening<T>(sizes)) return false;
  if (sizes.batch <= kFewRows) return true;
  const auto& kernels = cpu::kernels().of<T>();
  return sizes.batch <= kernels.max_direct_rows &&
         4 * sizes.batch >= 3 * padded(sizes.batch, kernels.batch_block);
}

constexpr int64_t kManyRows = 512;

template <class T>
bool is_backward_direct(const CellSizes& sizes) {
  return is_compute_type_v<T> && sizes.batch <= kManyRows &&
         (sizes.batch <= kFewRows || has_cached_weights<T>(sizes));
}

template <class Api, class T>
void run_direct(void (*kernel)(const cpu::CellForward<T>&, int64_t, int64_t),
                const cpu::CellForward<T>& args) {
  const auto& kernels = cpu::kernels().of<T>();
  run<Api>(kernel, args, kernels.panels(args.gates.state, cpu::kForwardVectors),
           2 * args.gates.rows * args.depth * Cell::kGates * kernels.width, kGrainFlops);
}

// Forward of one step with the weights read in place.
template <class Api, class T>
void cell_direct(const CellSizes& sizes, const T* input, const T* weights_, const T* old_h,
                 const cpu::GatesForward<T>& gates) {
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  const int64_t width = state + features;
  const auto& kernels = cpu::kernels().of<T>();
  const Widened<T> weights(weights_, sizes.gates() * width);
  if (batch <= kFewRows) {
    const Scratch<T> joined(batch * width);
    concatenate(old_h, input, sizes, joined.data());
    const Widened<T> x(joined.data(), batch * width);
    return run_direct<Api, T>(kernels.cell_few,
                              {gates, x.data(), width, weights.data(), width, width});
  }
  const int64_t stride = padded(batch, kernels.batch_block);
  const Scratch<cpu::compute_t<T>> x(width * stride);
  kernels.transpose({batch, state, old_h, x.data(), stride});
  kernels.transpose({batch, features, input, x.data() + state * stride, stride});
  run_direct<Api, T>(kernels.cell_many, {gates, x.data(), stride, weights.data(), width, width});
}

// c = a b for a cell: in place if the weights are small, else in packed blocks.
template <class Api, class T>
void cell_product(bool direct, const Matrix<T>& c, const Matrix<const T>& a,
                  const Matrix<const T>& b) {
  if constexpr (is_compute_type_v<T>) {
    if (direct) {
      const auto& kernels = cpu::kernels().products<T>();
      const cpu::Product<T> args{c.rows,          c.columns, a.columns,    a.data, a.row_stride,
                                 a.column_stride, b.data,    b.row_stride, c.data, c.row_stride};
      const int64_t lanes = cpu::kernels().of<T>().width;
      run<Api>(kernels.product, args, cpu::kernels().of<T>().panels(c.columns, cpu::kDirectVectors),
               2 * c.rows * a.columns * cpu::kDirectVectors * lanes, kGrainFlops);
      return;
    }
  }
  multiply<Api>(c, a, b);
}

template <class Api, class Tensor = typename Api::Tensor>
CellResult<Api> cell_compute(const char* op, const Tensor& input_, const Tensor& weights_,
                             const std::optional<Tensor>& bias_, const Tensor& old_h_,
                             const Tensor& old_cell_, double alpha, bool save) {
  const CellSizes sizes = check_cell<Api>(op, input_, weights_, bias_, old_h_, old_cell_, alpha);
  const Tensor input = Api::contiguous(input_), weights = Api::contiguous(weights_),
               old_h = Api::contiguous(old_h_), old_cell = Api::contiguous(old_cell_);
  const auto bias = contiguous_or_none<Api>(bias_);
  CellResult<Api> result{Api::empty(input, {sizes.batch, sizes.state}),
                         Api::empty(input, {sizes.batch, sizes.state}), std::nullopt};
  if (save) result.gates = Api::empty(input, {sizes.batch, Cell::kSaved * sizes.state});
  if (sizes.batch == 0 || sizes.state == 0) return result;

  dispatch(input.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    cpu::GatesForward<T> gates{sizes.batch, sizes.state, {alpha}};
    gates.bias = data_or_null<Api, T>(bias);
    gates.old_state[0] = Api::template data<T>(old_h);
    gates.old_state[1] = Api::template data<T>(old_cell);
    gates.new_state[0] = Api::template mutable_data<T>(result.new_h);
    gates.new_state[1] = Api::template mutable_data<T>(result.new_cell);
    gates.saved = mutable_data_or_null<Api, T>(result.gates);
    if (is_forward_direct<T>(sizes)) {
      return cell_direct<Api, T>(sizes, Api::template data<T>(input),
                                 Api::template data<T>(weights), Api::template data<T>(old_h),
                                 gates);
    }
    const int64_t width = sizes.state + sizes.features, rows = sizes.gates();
    const Scratch<T> x(sizes.batch * width);
    concatenate(Api::template data<T>(old_h), Api::template data<T>(input), sizes, x.data());
    const Scratch<cpu::compute_t<T>> z(sizes.batch * rows);
    multiply<Api>(dense(z.data(), sizes.batch, rows), dense<const T>(x.data(), sizes.batch, width),
                  dense(Api::template data<T>(weights), rows, width).transposed());
    gates.z = z.data();
    gates.z_stride = rows;
    gates_forward<Api, T>(gates);
  });
  return result;
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor> cell_cpu(const Tensor& input, const Tensor& weights,
                                    const std::optional<Tensor>& bias, const Tensor& old_h,
                                    const Tensor& old_cell, double alpha) {
  auto result = cell_compute<Api>("cell", input, weights, bias, old_h, old_cell, alpha, false);
  return {result.new_h, result.new_cell};
}

template <class Api, class Tensor = typename Api::Tensor>
std::tuple<Tensor, Tensor, Tensor> cell_forward_cpu(const Tensor& input, const Tensor& weights,
                                                    const std::optional<Tensor>& bias,
                                                    const Tensor& old_h, const Tensor& old_cell,
                                                    double alpha) {
  auto result =
      cell_compute<Api>("cell_forward", input, weights, bias, old_h, old_cell, alpha, true);
  return {result.new_h, result.new_cell, *result.gates};
}

template <class Api, class Tensor = typename Api::Tensor>
Gradients<Tensor> cell_backward_cpu(const std::optional<Tensor>& grad_h_,
                                    const std::optional<Tensor>& grad_cell_, const Tensor& input_,
                                    const Tensor& weights_, const std::optional<Tensor>& bias_,
                                    const Tensor& old_h_, const Tensor& old_cell,
                                    const Tensor& new_cell_, const Tensor& gates_, double alpha,
                                    const typename Api::Needs& needs) {
  const CellSizes sizes = check_cell_backward<Api>(grad_h_, grad_cell_, input_, weights_, bias_,
                                                   old_h_, old_cell, new_cell_, gates_, alpha);
  const int64_t batch = sizes.batch, features = sizes.features, state = sizes.state;
  check_needs("cell_backward", needs, bias_.has_value());
  const Tensor weights = Api::contiguous(weights_), new_cell = Api::contiguous(new_cell_),
               gates = Api::contiguous(gates_);
  const auto grad_h = contiguous_or_none<Api>(grad_h_),
             grad_cell = contiguous_or_none<Api>(grad_cell_);
  const auto d_input = empty_if<Api>(needs[kInput], input_, {batch, features});
  const auto d_weights = empty_if<Api>(needs[kWeights], input_, {sizes.gates(), state + features});
  const auto d_bias = empty_like_if<Api>(needs[kBias], bias_);
  const auto d_old_h = empty_if<Api>(needs[kOldH], input_, {batch, state});
  const auto d_old_cell = empty_if<Api>(needs[kOldCell], input_, {batch, state});

  const int64_t width = state + features;
  dispatch(input_.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Scratch<T> d_z(batch * sizes.gates());
    T* d_z_data = d_z.data();
    cpu::GatesBackward<T> step{batch, state, {alpha}};
    step.saved = Api::template data<T>(gates);
    step.new_state[1] = Api::template data<T>(new_cell);
    step.grad_h = data_or_null<Api, T>(grad_h);
    step.grad_state[1] = data_or_null<Api, T>(grad_cell);
    step.d_old_state[1] = mutable_data_or_null<Api, T>(d_old_cell);
    step.d_z[0] = d_z_data;
    gates_backward<Api, T>(step);
    const bool direct = is_backward_direct<T>(sizes);
    const auto d = dense<const T>(d_z_data, batch, sizes.gates());
    const auto w = dense(Api::template data<T>(weights), sizes.gates(), width);
    if (d_input) {
      cell_product<Api>(direct, dense(Api::template mutable_data<T>(*d_input), batch, features), d,
                        w.column_range(state, features));
    }
    if (d_old_h) {
      cell_product<Api>(direct, dense(Api::template mutable_data<T>(*d_old_h), batch, state), d,
                        w.column_range(0, state));
    }
    if (d_weights) {
      const Tensor old_h = Api::contiguous(old_h_), input = Api::contiguous(input_);
      const auto d_w = dense(Api::template mutable_data<T>(*d_weights), sizes.gates(), width);
      if (direct) {
        cell_product<Api>(true, d_w.column_range(0, state), d.transposed(),
                          dense(Api::template data<T>(old_h), batch, state));
        cell_product<Api>(true, d_w.column_range(state, features), d.transposed(),
                          dense(Api::template data<T>(input), batch, features));
      } else {
        const Scratch<T> x(batch * width);
        concatenate(Api::template data<T>(old_h), Api::template data<T>(input), sizes, x.data());
        multiply<Api>(d_w, d.transposed(), dense<const T>(x.data(), batch, width));
      }
    }
    if (d_bias) {
      column_sum<Api, T>({batch, sizes.gates(), d_z_data, Api::template mutable_data<T>(*d_bias)});
    }
  });
  return gradients<Api>(input_, d_input, d_weights, d_bias, d_old_h, d_old_cell);
}

}  // namespace lltm
