// One step on CUDA arrays: concatenate, multiply, one kernel for the gates.
//
// Nothing here may look at a result: every function only queues work on the current stream of the
// input's device (Api::Queue) and returns.
#pragma once

#include <algorithm>

#include "../cuda/kernels.h"
#include "matrix.h"
#include "passes.h"
#include "products_cuda.h"

namespace lltm {

template <class Api, class T>
void cell_forward_cuda(const typename Api::Queue& queue, const CellForward<T>& args,
                       const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes;
  const int64_t batch = sizes.batch, gates = sizes.gates(), width = sizes.width();
  const DeviceScratch<Api, T> x(like, batch * width), z(like, batch * gates);
  cuda::Concatenate<T> both{batch, batch, sizes.features, sizes.state};
  both.h0 = args.old_state[0];
  both.input = args.input;
  both.x = x.data();
  cuda::concatenate(both, queue.stream());
  Api::matmul(queue, dense(z.data(), batch, gates), dense<const T>(x.data(), batch, width),
              dense(args.weights, gates, width).transposed());
  cuda::GatesForward<T> step{batch, sizes.state, args.scalars};
  step.z_input = z.data();
  step.bias = args.bias;
  std::copy_n(args.old_state, Cell::kStates, step.old_state);
  std::copy_n(args.new_state, Cell::kStates, step.new_state);
  step.saved = args.saved;
  cuda::gates_forward(step, queue.stream());
}

template <class Api, class T>
void cell_backward_cuda(const typename Api::Queue& queue, const CellBackward<T>& args,
                        const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes;
  const int64_t batch = sizes.batch, gates = sizes.gates();
  const DeviceScratch<Api, T> d_z(like, batch * gates);
  cuda::GatesBackward<T> step{batch, sizes.state, args.scalars};
  step.saved = args.saved;
  std::copy_n(args.old_state, Cell::kStates, step.old_state);
  std::copy_n(args.new_state, Cell::kStates, step.new_state);
  std::copy_n(args.grad_state, Cell::kStates, step.grad_state);
  std::copy_n(args.d_old_state, Cell::kStates, step.d_old_state);
  step.d_z[0] = d_z.data();
  cuda::gates_backward(step, queue.stream());
  input_and_bias_gradients<Api, T>(queue, batch, sizes, step.d_z, args.weights, args.d, like);
  if (args.d_old_state[0]) {
    Api::matmul(queue, dense(args.d_old_state[0], batch, sizes.state),
                dense<const T>(d_z.data(), batch, gates),
                dense(args.weights, gates, sizes.width()).column_range(0, sizes.state));
  }
  if (!args.d.weights) return;
  CudaWeightGradient<T> of{batch, sizes};
  of.d_z[0] = d_z.data();
  of.x = {batch, batch, 0, sizes.state};
  of.x.h0 = args.old_h;
  of.input = args.input;
  of.d_weights = args.d.weights;
  weight_gradient_cuda<Api>(queue, of, like);
}

}  // namespace lltm
