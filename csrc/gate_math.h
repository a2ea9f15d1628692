// The gates of the cell: what happens to one element once its pre-activations are known.
//
// No torch header and no vector type is named here: V is float or double on a GPU and a SIMD vector
// on a CPU, and Math has the elementary functions for it (sigmoid, tanh, elu, elu_with_derivative).
// Kernels are templates over this functor, so another cell is another functor.
#pragma once

#if defined(__CUDACC__)
#define LLTM_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define LLTM_HOST_DEVICE inline __attribute__((always_inline))
#else
#define LLTM_HOST_DEVICE inline
#endif

namespace lltm {

// The LLTM: an LSTM without a forget gate, with an ELU candidate.
//   new_cell = old_cell + elu(z_candidate) * sigmoid(z_input)
//   new_h    = tanh(new_cell) * sigmoid(z_output)
template <class Math>
struct LltmGates {
  // Pre-activations per state element, in the order of the rows of `weights`.
  static constexpr int kGates = 3;

  template <class V>
  struct Forward {
    V new_h;
    V new_cell;
    // What backward reads. The candidate is kept as its pre-activation: elu' = exp(z) cannot be had
    // from elu(z) = exp(z) - 1 without losing every digit where z is very negative.
    V saved[kGates];  // input_gate, output_gate, z_candidate
  };

  template <class V>
  struct Backward {
    V d_z[kGates];  // in the order of the rows of `weights`
    V d_old_cell;
  };

  template <class V, class Scalar>
  static LLTM_HOST_DEVICE Forward<V> forward(const V z[kGates], V old_cell, Scalar alpha) {
    const V input_gate = Math::sigmoid(z[0]);
    const V output_gate = Math::sigmoid(z[1]);
    const V candidate_cell = Math::elu(z[2], alpha);
    const V new_cell = old_cell + candidate_cell * input_gate;
    return {Math::tanh(new_cell) * output_gate, new_cell, {input_gate, output_gate, z[2]}};
  }

  template <class V, class Scalar>
  static LLTM_HOST_DEVICE Backward<V> backward(const V saved[kGates], V new_cell, V grad_h,
                                               V grad_cell, Scalar alpha) {
    const V input_gate = saved[0];
    const V output_gate = saved[1];
    const auto candidate = Math::elu_with_derivative(saved[2], alpha);
    const V t = Math::tanh(new_cell);
    const V d_cell = grad_cell + grad_h * output_gate * (Scalar(1) - t * t);
    const V d_input_gate = d_cell * candidate.value;
    const V d_output_gate = grad_h * t;
    const V d_candidate = d_cell * input_gate;
    return {{d_input_gate * (input_gate * (Scalar(1) - input_gate)),
             d_output_gate * (output_gate * (Scalar(1) - output_gate)),
             d_candidate * candidate.derivative},
            d_cell};
  }
};

}  // namespace lltm
