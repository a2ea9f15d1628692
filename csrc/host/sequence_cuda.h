// All steps on CUDA arrays: the input's share of the pre-activations in one product before the time
// loop, the weights' gradient in one product after it. In between one launch where the state fits
// the GPU's registers, else a product and a kernel a step.
#pragma once

#include <algorithm>
#include <optional>

#include "../cuda/kernels.h"
#include "matrix.h"
#include "passes.h"
#include "products_cuda.h"

namespace lltm {

// The states after step t, [B, S] each; before the first one for t = -1.
template <class T>
const T* state_after(const SequenceBackward<T>& args, int i, int64_t t, int64_t plane) {
  if (t < 0) return args.first[i];
  if (i == 0) return args.output + t * plane;
  return args.states + (t * (Cell::kStates - 1) + i - 1) * plane;
}

// The states before a step, with those of rows that begin again in their place.
template <class Api, class T>
class ResetStatesCuda {
 public:
  ResetStatesCuda(const Resets<T>& resets, const CellSizes& sizes, const typename Api::Tensor& like)
      : resets_(resets),
        sizes_(sizes),
        replaced_(like, resets.rows ? Cell::kStates * sizes.batch * sizes.state : 0) {}

  // The mask of step t, [B], or null.
  const bool* rows(int64_t t) const {
    return resets_.rows ? resets_.rows + t * sizes_.batch : nullptr;
  }

  void replace(const typename Api::Queue& queue, int64_t t,
               const T* (&states)[Cell::kStates]) const {
    if (!resets_.rows) return;
    cuda::ResetStates<T> args{sizes_.batch, sizes_.state, rows(t)};
    for (int i = 0; i < Cell::kStates; ++i) {
      args.from[i] = states[i];
      args.reset_state[i] = resets_.state[i];
      args.to[i] = replaced_.data() + i * sizes_.batch * sizes_.state;
      states[i] = args.to[i];
    }
    cuda::reset_states(args, queue.stream());
  }

 private:
  Resets<T> resets_;
  CellSizes sizes_;
  DeviceScratch<Api, T> replaced_;
};

// Forward ----------------------------------------------------------------------------------------

template <class Api, class T>
void sequence_steps_cuda(const typename Api::Queue& queue, const SequenceForward<T>& args,
                         const Matrix<const T>& weights, const T* projected,
                         const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const int64_t batch = sizes.batch, gates = sizes.gates(), plane = batch * sizes.state;
  const DeviceScratch<Api, T> recurrent(like, batch * gates);
  const ResetStatesCuda<Api, T> resets(args.resets, sizes, like);
  cuda::GatesForward<T> step{batch, sizes.state, args.scalars};
  step.z_recurrent = recurrent.data();
  step.bias = args.bias;
  std::copy_n(args.first, Cell::kStates, step.old_state);
  for (int64_t t = 0; t < args.sizes.steps; ++t) {
    resets.replace(queue, t, step.old_state);
    Api::matmul(queue, dense(recurrent.data(), batch, gates),
                dense(step.old_state[0], batch, sizes.state), weights.transposed());
    step.z_input = projected + t * batch * gates;
    step.new_state[0] = args.output + t * plane;
    for (int i = 1; i < Cell::kStates; ++i) {
      step.new_state[i] =
          args.states ? args.states + (t * (Cell::kStates - 1) + i - 1) * plane : args.last[i];
    }
    if (args.saved) step.saved = args.saved + t * plane * Cell::kSaved;
    cuda::gates_forward(step, queue.stream());
    std::copy_n(step.new_state, Cell::kStates, step.old_state);
  }
  for (int i = 0; i < Cell::kStates; ++i) {
    if (step.old_state[i] == args.last[i]) continue;
    cuda::copy(args.last[i], step.old_state[i], plane * sizeof(T), queue.stream());
  }
}

template <class Api, class T>
void sequence_forward_cuda(const typename Api::Queue& queue, const SequenceForward<T>& args,
                           const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const int64_t rows = args.sizes.steps * sizes.batch, gates = sizes.gates();
  const DeviceScratch<Api, T> projected(like, rows * gates);
  Api::matmul(queue, dense(projected.data(), rows, gates), dense(args.input, rows, sizes.features),
              Matrix<const T>{args.weights.input, gates, sizes.features, args.weights.input_stride}
                  .transposed());
  const StateWeights<Api, T> weights(queue, args.weights.state, args.weights.state_stride, sizes,
                                     like);
  const auto plan = cuda::persistent_plan<T>(sizes.batch, sizes.state);
  if (args.sizes.steps == 0 || args.resets.rows || !plan.fits()) {
    return sequence_steps_cuda<Api, T>(queue, args, weights.matrix(), projected.data(), like);
  }
  const DeviceScratch<Api, float> arrivals(like, plan.groups);
  cuda::PersistentForward<T> all{args.sizes.steps, sizes.batch, sizes.state, args.scalars};
  all.weights = weights.matrix().data;
  all.weights_stride = weights.matrix().row_stride;
  all.bias = args.bias;
  std::copy_n(args.first, Cell::kStates, all.first);
  all.projected = projected.data();
  all.output = args.output;
  std::copy_n(args.last, Cell::kStates, all.last);
  all.states = args.states;
  all.saved = args.saved;
  all.arrivals = reinterpret_cast<unsigned*>(arrivals.data());
  cuda::persistent_forward(all, plan, queue.stream());
}

// Backward ---------------------------------------------------------------------------------------

// The steps from the last to the first, a kernel and a product each.
template <class Api, class T>
class BackwardStepsCuda {
 public:
  using V = cuda::compute_t<T>;
  using Queue = typename Api::Queue;
  using Tensor = typename Api::Tensor;

  BackwardStepsCuda(const Queue& queue, const SequenceBackward<T>& args,
                    const Matrix<const T>& weights, const Tensor& like)
      : queue_(queue),
        args_(args),
        weights_(weights),
        plane_(args.sizes.cell.batch * args.sizes.cell.state),
        resets_(args.resets, args.sizes.cell, like),
        d_h_(like, plane_),
        carry_(like, Cell::kStates * plane_) {
    const bool wanted = std::any_of(args.d_reset_state, args.d_reset_state + Cell::kStates,
                                    [](const T* to) { return to != nullptr; });
    if (!wanted) return;
    reset_sums_.emplace(like, Cell::kStates * plane_);
    cuda::clear(reset_sums_->data(), Cell::kStates * plane_ * sizeof(V), queue.stream());
  }

  void run() {
    for (int64_t t = args_.sizes.steps - 1; t >= 0; --t) step(t);
    for (int i = 0; i < Cell::kStates; ++i) {
      const V* passed = i >= kFirstPassed ? carry_.data() + i * plane_ : nullptr;
      add(i == 0 ? d_h_.data() : nullptr, passed, args_.d_first[i]);
      if (reset_sums_) add(nullptr, reset_sums_->data() + i * plane_, args_.d_reset_state[i]);
    }
  }

 private:
  void step(int64_t t) {
    const CellSizes& sizes = args_.sizes.cell;
    const int64_t gates = sizes.gates();
    const bool last = t == args_.sizes.steps - 1;
    cuda::GatesBackward<T> step{sizes.batch, sizes.state, args_.scalars};
    step.saved = args_.saved + t * plane_ * Cell::kSaved;
    for (int i = 0; i < Cell::kStates; ++i) {
      step.old_state[i] = state_after(args_, i, t - 1, plane_);
      step.new_state[i] = state_after(args_, i, t, plane_);
      if (last) step.grad_state[i] = args_.grad_last[i];
      step.carry_out[i] = carry_.data() + i * plane_;
      if (!last) step.carry_in[i] = step.carry_out[i];
    }
    step.grad_h_extra = last ? args_.grad_last[0] : d_h_.data();
    step.grad_state[0] = args_.grad_output ? args_.grad_output + t * plane_ : nullptr;
    resets_.replace(queue_, t, step.old_state);
    for (int i = 0; i < kShares; ++i) step.d_z[i] = args_.d_z[i] + t * sizes.batch * gates;
    cuda::gates_backward(step, queue_.stream());
    Api::matmul(queue_, dense(d_h_.data(), sizes.batch, sizes.state),
                dense<const T>(step.d_z[kRecurrentShare], sizes.batch, gates), weights_);
    if (resets_.rows(t)) drop_rows(t);
  }

  // What goes to the states that rows began again with does not go to the step before.
  void drop_rows(int64_t t) const {
    const CellSizes& sizes = args_.sizes.cell;
    cuda::ResetGradients<T> args{sizes.batch, sizes.state, resets_.rows(t)};
    args.d_h = d_h_.data();
    args.carry = carry_.data();
    args.sums = reset_sums_ ? reset_sums_->data() : nullptr;
    cuda::reset_gradients(args, queue_.stream());
  }

  void add(const T* stored, const V* passed, T* to) const {
    if (to) cuda::add_values<T>({plane_, stored, passed, to}, queue_.stream());
  }

  const Queue& queue_;
  const SequenceBackward<T>& args_;
  Matrix<const T> weights_;
  int64_t plane_;
  ResetStatesCuda<Api, T> resets_;
  // Gradients that pass from a step to the one before it.
  DeviceScratch<Api, T> d_h_;
  DeviceScratch<Api, V> carry_;                      // [N, B, S]
  std::optional<DeviceScratch<Api, V>> reset_sums_;  // [N, B, S]
};

template <class Api, class T>
void sequence_loop_backward_cuda(const typename Api::Queue& queue, const SequenceBackward<T>& args,
                                 const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const StateWeights<Api, T> weights(queue, args.weights, sizes.width(), sizes, like);
  const auto plan = cuda::persistent_plan<T>(sizes.batch, sizes.state);
  if (args.resets.rows || !plan.fits()) {
    return BackwardStepsCuda<Api, T>(queue, args, weights.matrix(), like).run();
  }
  const DeviceScratch<Api, cuda::compute_t<T>> carry(like,
                                                     Cell::kStates * sizes.batch * sizes.state);
  const DeviceScratch<Api, float> arrivals(like, plan.groups);
  cuda::PersistentBackward<T> all{args.sizes.steps, sizes.batch, sizes.state, args.scalars};
  all.weights = weights.matrix().data;
  all.weights_stride = weights.matrix().row_stride;
  std::copy_n(args.first, Cell::kStates, all.first);
  all.output = args.output;
  all.states = args.states;
  all.saved = args.saved;
  all.grad_output = args.grad_output;
  std::copy_n(args.grad_last, Cell::kStates, all.grad_last);
  std::copy_n(args.d_z, kShares, all.d_z);
  std::copy_n(args.d_first, Cell::kStates, all.d_first);
  all.carry = carry.data();
  all.arrivals = reinterpret_cast<unsigned*>(arrivals.data());
  cuda::persistent_backward(all, plan, queue.stream());
}

// The gradients that the states get when there is no step in between.
template <class T>
void pass_through_cuda(const SequenceBackward<T>& args, cuda::Stream stream) {
  const int64_t bytes =
      args.sizes.cell.batch * args.sizes.cell.state * static_cast<int64_t>(sizeof(T));
  for (int i = 0; i < Cell::kStates; ++i) {
    if (args.d_reset_state[i]) cuda::clear(args.d_reset_state[i], bytes, stream);
    if (!args.d_first[i]) continue;
    args.grad_last[i] ? cuda::copy(args.d_first[i], args.grad_last[i], bytes, stream)
                      : cuda::clear(args.d_first[i], bytes, stream);
  }
}

template <class Api, class T>
void sequence_backward_cuda(const typename Api::Queue& queue, SequenceBackward<T> args,
                            const typename Api::Tensor& like) {
  const CellSizes& sizes = args.sizes.cell;
  const int64_t steps = args.sizes.steps, rows = steps * sizes.batch, gates = sizes.gates();
  const DeviceScratch<Api, T> d_z(like, kShares * rows * gates);
  for (int share = 0; share < kShares; ++share) args.d_z[share] = d_z.data() + share * rows * gates;
  if (steps == 0) {
    pass_through_cuda(args, queue.stream());
  } else if (sizes.batch * sizes.state > 0) {
    sequence_loop_backward_cuda<Api>(queue, args, like);
  }
  input_and_bias_gradients<Api, T>(queue, rows, sizes, args.d_z, args.weights, args.d, like);
  if (!args.d.weights) return;
  CudaWeightGradient<T> of{rows, sizes};
  std::copy_n(args.d_z, kShares, of.d_z);
  of.x = {rows, sizes.batch, 0, sizes.state};
  of.x.h0 = args.first[0];
  of.x.output = args.output;
  of.x.reset = args.resets.rows;
  of.x.reset_h = args.resets.state[0];
  of.input = args.input;
  of.d_weights = args.d.weights;
  weight_gradient_cuda<Api>(queue, of, like);
}

}  // namespace lltm
