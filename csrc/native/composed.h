// The composed backend: the cell written in ATen operations, as in the tutorial.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace lltm::native {

// Shapes as in contract.h. Differentiable to any order and in every mode, because each operation
// is.
std::tuple<at::Tensor, at::Tensor> cell_aten(const at::Tensor& input, const at::Tensor& weights,
                                             const std::optional<at::Tensor>& bias,
                                             const at::Tensor& old_h, const at::Tensor& old_cell,
                                             double alpha);

std::tuple<at::Tensor, at::Tensor, at::Tensor> sequence_aten(const at::Tensor& input,
                                                             const at::Tensor& weights,
                                                             const std::optional<at::Tensor>& bias,
                                                             const at::Tensor& h0,
                                                             const at::Tensor& c0, double alpha);

}  // namespace lltm::native
