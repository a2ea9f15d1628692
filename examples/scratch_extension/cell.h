// One step of the LLTM and its derivative, composed of ATen operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace scratch {

// input [B, F], weights [3S, S + F], bias [3S], old_h and old_cell [B, S]
// -> new_h, new_cell, and for backward: input_gate, output_gate, candidate_cell [B, S],
//    X [B, S + F], gate_weights [B, 3S]
std::vector<at::Tensor> forward(const at::Tensor& input, const at::Tensor& weights,
                                const at::Tensor& bias, const at::Tensor& old_h,
                                const at::Tensor& old_cell);

// -> d_input, d_weights, d_bias, d_old_h, d_old_cell
std::vector<at::Tensor> backward(const at::Tensor& grad_h, const at::Tensor& grad_cell,
                                 const at::Tensor& new_cell, const at::Tensor& input_gate,
                                 const at::Tensor& output_gate, const at::Tensor& candidate_cell,
                                 const at::Tensor& X, const at::Tensor& gate_weights,
                                 const at::Tensor& weights);

}  // namespace scratch
