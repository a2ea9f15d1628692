// Small helpers of the host functions: dtype dispatch, optional tensors.
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>

#include "../contract.h"
#include "../cpu/types.h"

namespace lltm {

// Calls `body` with a value of the storage type; the contract has let no other dtype through.
template <class Body>
void dispatch(torch::headeronly::ScalarType dtype, Body&& body) {
  using torch::headeronly::ScalarType;
  switch (dtype) {
    case ScalarType::Float:
      return body(float{});
    case ScalarType::Double:
      return body(double{});
    case ScalarType::BFloat16:
      return body(cpu::BFloat16{});
    case ScalarType::Half:
      return body(cpu::Half{});
    default:
      STD_TORCH_CHECK(false, "lltm: no kernel for dtype ", dtype_name(dtype));
  }
}

template <class Api, class Tensor>
std::optional<Tensor> contiguous_or_none(const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return Api::contiguous(*tensor);
}

template <class Api, class Tensor>
std::optional<Tensor> empty_if(bool wanted, const Tensor& like,
                               std::initializer_list<int64_t> sizes) {
  if (!wanted) return std::nullopt;
  return Api::empty(like, sizes);
}

// [3S] or [1, 3S]: the shape of the bias that came.
template <class Api, class Tensor>
std::optional<Tensor> empty_like_if(bool wanted, const std::optional<Tensor>& like) {
  if (!wanted) return std::nullopt;
  return like->dim() == 1 ? Api::empty(*like, {like->size(0)})
                          : Api::empty(*like, {1, like->size(1)});
}

template <class Api, class T, class Tensor>
const T* data_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? Api::template data<T>(*tensor) : nullptr;
}

template <class Api, class T, class Tensor>
T* mutable_data_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? Api::template mutable_data<T>(*tensor) : nullptr;
}

template <class Tensor>
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// In the order of Argument; one that was not wanted has no elements.
template <class Api, class Tensor>
Gradients<Tensor> gradients(const Tensor& like, const std::optional<Tensor>& d_input,
                            const std::optional<Tensor>& d_weights,
                            const std::optional<Tensor>& d_bias,
                            const std::optional<Tensor>& d_old_h,
                            const std::optional<Tensor>& d_old_cell) {
  const auto or_nothing = [&](const std::optional<Tensor>& tensor) {
    return tensor ? *tensor : Api::empty(like, {0});
  };
  return {or_nothing(d_input), or_nothing(d_weights), or_nothing(d_bias), or_nothing(d_old_h),
          or_nothing(d_old_cell)};
}

// bool[5] comes as a std::vector or a std::array: Api::Needs.
template <class Needs>
void check_needs(const char* op, const Needs& needs, bool has_bias) {
  STD_TORCH_CHECK(needs.size() == kArguments, "lltm::", op, ": needs_input_grad must have ",
                  static_cast<int>(kArguments), " entries, got ", needs.size());
  STD_TORCH_CHECK(has_bias || !needs[kBias], "lltm::", op,
                  ": needs_input_grad asks for the gradient of bias, which is None");
}

}  // namespace lltm
