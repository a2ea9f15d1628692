// The composed backend: the cell written in ATen operations, as in the tutorial.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "../lltm_arguments.h"
#include "api.h"

namespace lltm::native {

inline std::optional<at::Tensor> flat(const std::optional<at::Tensor>& bias) {
  if (!bias) return std::nullopt;
  return bias->reshape({-1});
}

// z [B, 3S] -> (new_h, new_cell), [B, S] each
inline std::tuple<at::Tensor, at::Tensor> gates(const at::Tensor& z, const at::Tensor& old_cell,
                                                double alpha) {
  const auto chunks = z.chunk(lltm::Cell::kGates, /*dim=*/1);
  const auto input_gate = at::sigmoid(chunks[0]);
  const auto output_gate = at::sigmoid(chunks[1]);
  const auto candidate_cell = at::elu(chunks[2], alpha);
  const auto new_cell = old_cell + candidate_cell * input_gate;
  const auto new_h = at::tanh(new_cell) * output_gate;
  return {new_h, new_cell};
}

// ATen's operations would compute on other layouts what the fused ops refuse, or fail midway.
inline void check_dense(const char* op, std::initializer_list<const char*> names,
                        std::initializer_list<at::Tensor> tensors) {
  auto name = names.begin();
  for (const at::Tensor& tensor : tensors) {
    const bool other = tensor.defined() && (tensor.layout() != at::kStrided ||
                                            tensor.is_quantized() || tensor.is_nested());
    TORCH_CHECK(!other, "lltm::", op, ": ", *name, " must be a dense tensor (strided), got ",
                tensor.toString());
    ++name;
  }
}

// Shapes as in contract.h. Differentiable to any order and in every mode, because each operation
// is.
inline std::tuple<at::Tensor, at::Tensor> cell_aten(const at::Tensor& input,
                                                    const at::Tensor& weights,
                                                    const std::optional<at::Tensor>& bias,
                                                    const at::Tensor& old_h,
                                                    const at::Tensor& old_cell, double alpha) {
  check_dense("cell_aten", {"input", "weights", "bias", "old_h", "old_cell"},
              {input, weights, bias.value_or(at::Tensor()), old_h, old_cell});
  check_lltm<Api>("cell_aten", cell_arguments(input, weights, bias, old_h, old_cell), alpha);
  const auto x = at::cat({old_h, input}, /*dim=*/1);
  return gates(at::linear(x, weights, flat(bias)), old_cell, alpha);
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> sequence_aten(
    const at::Tensor& input, const at::Tensor& weights, const std::optional<at::Tensor>& bias,
    const at::Tensor& h0, const at::Tensor& c0, double alpha) {
  check_dense("sequence_aten", {"input", "weights", "bias", "h0", "c0"},
              {input, weights, bias.value_or(at::Tensor()), h0, c0});
  const auto sizes =
      check_lltm<Api>("sequence_aten", sequence_arguments(input, weights, bias, h0, c0), alpha);
  const int64_t state = sizes.cell.state;
  const auto projected =
      at::linear(input, weights.narrow(1, state, sizes.cell.features), flat(bias));
  const auto state_weights = weights.narrow(1, 0, state);
  at::Tensor h = h0, cell = c0;
  std::vector<at::Tensor> output;
  for (int64_t t = 0; t < sizes.steps; ++t) {
    std::tie(h, cell) = gates(projected.select(0, t) + at::linear(h, state_weights), cell, alpha);
    output.push_back(h);
  }
  if (output.empty()) {
    return {h0.new_empty({0, sizes.cell.batch, state}), h0.clone(), c0.clone()};
  }
  return {at::stack(output), h.clone(), cell.clone()};
}

}  // namespace lltm::native
