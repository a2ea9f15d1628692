#include "cell.h"

// One header an operation: a tenth of the compile time of <torch/extension.h>.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

namespace scratch {
namespace {

at::Tensor d_sigmoid(const at::Tensor& s) { return (1 - s) * s; }

// 1 above 0, exp(z) at and below: torch's value at 0, and no 0 * inf where exp(z) overflows.
at::Tensor d_elu(const at::Tensor& z) { return at::where(z > 0, at::ones_like(z), at::exp(z)); }

}  // namespace

std::vector<at::Tensor> forward(const at::Tensor& input, const at::Tensor& weights,
                                const at::Tensor& bias, const at::Tensor& old_h,
                                const at::Tensor& old_cell) {
  const auto X = at::cat({old_h, input}, /*dim=*/1);
  const auto gate_weights = at::addmm(bias, X, weights.t());
  const auto gates = gate_weights.chunk(3, /*dim=*/1);
  const auto input_gate = at::sigmoid(gates[0]);
  const auto output_gate = at::sigmoid(gates[1]);
  const auto candidate_cell = at::elu(gates[2]);
  const auto new_cell = old_cell + candidate_cell * input_gate;
  const auto new_h = at::tanh(new_cell) * output_gate;
  return {new_h, new_cell, input_gate, output_gate, candidate_cell, X, gate_weights};
}

std::vector<at::Tensor> backward(const at::Tensor& grad_h, const at::Tensor& grad_cell,
                                 const at::Tensor& new_cell, const at::Tensor& input_gate,
                                 const at::Tensor& output_gate, const at::Tensor& candidate_cell,
                                 const at::Tensor& X, const at::Tensor& gate_weights,
                                 const at::Tensor& weights) {
  const auto tanh_cell = at::tanh(new_cell);
  const auto d_new_cell = (1 - tanh_cell * tanh_cell) * output_gate * grad_h + grad_cell;
  const auto z_candidate = gate_weights.chunk(3, /*dim=*/1)[2];
  const auto d_gates = at::cat({candidate_cell * d_new_cell * d_sigmoid(input_gate),
                                tanh_cell * grad_h * d_sigmoid(output_gate),
                                input_gate * d_new_cell * d_elu(z_candidate)},
                               /*dim=*/1);
  const auto d_X = d_gates.mm(weights);
  const auto state = grad_h.size(1);
  return {d_X.narrow(1, state, d_X.size(1) - state), d_gates.t().mm(X), d_gates.sum(0),
          d_X.narrow(1, 0, state), d_new_cell};
}

}  // namespace scratch
