// Reverse-mode autograd in C++, over the kernels that the dispatcher finds for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace lltm::native {

std::tuple<at::Tensor, at::Tensor> cell_autograd(const at::Tensor& input, const at::Tensor& weights,
                                                 const std::optional<at::Tensor>& bias,
                                                 const at::Tensor& old_h,
                                                 const at::Tensor& old_cell, double alpha);

std::tuple<at::Tensor, at::Tensor, at::Tensor> sequence_autograd(
    const at::Tensor& input, const at::Tensor& weights, const std::optional<at::Tensor>& bias,
    const at::Tensor& h0, const at::Tensor& c0, double alpha);

}  // namespace lltm::native
