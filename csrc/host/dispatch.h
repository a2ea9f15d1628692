// Small helpers of the host functions: dtype dispatch, optional tensors.
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>

#include "../checks.h"
#include "../cpu/types.h"
#include "passes.h"

namespace lltm {
inline namespace LLTM_CELL {

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

template <class Device>
using TensorOf = typename Device::Api::Tensor;

template <class Api, class Tensor>
std::optional<Tensor> contiguous_if(bool wanted, const Tensor& tensor) {
  if (!wanted) return std::nullopt;
  return Api::contiguous(tensor);
}

template <class Api, class Tensor>
std::optional<Tensor> contiguous_or_none(const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return Api::contiguous(*tensor);
}

template <class Api, class Tensor>
std::optional<Tensor> contiguous_or_none(const Tensor* tensor) {
  if (!tensor) return std::nullopt;
  return Api::contiguous(*tensor);
}

template <class Api, class Tensor>
std::optional<Tensor> empty_if(bool wanted, const Tensor& like,
                               std::initializer_list<int64_t> sizes) {
  if (!wanted) return std::nullopt;
  return Api::empty(like, sizes);
}

// [PS] or [1, PS]: the shape of the bias that came.
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

// The gradients of the input, the weights and the bias, in so far as they are wanted.
template <class Api, class Tensor = typename Api::Tensor>
struct GradientTensors {
  std::optional<Tensor> input, weights, bias;

  GradientTensors(const typename Api::Needs& needs, const Tensor& like, const CellSizes& sizes,
                  const std::optional<Tensor>& bias_like,
                  std::initializer_list<int64_t> input_sizes)
      : input(empty_if<Api>(needs[kInput], like, input_sizes)),
        weights(empty_if<Api>(needs[kWeights], like, {sizes.gates(), sizes.width()})),
        bias(empty_like_if<Api>(needs[kBias], bias_like)) {}

  template <class T>
  ParameterGradients<T> data() const {
    return {mutable_data_or_null<Api, T>(input), mutable_data_or_null<Api, T>(weights),
            mutable_data_or_null<Api, T>(bias)};
  }

  // All of an op's, in the order of its arguments; one that was not wanted has no elements.
  Gradients<Tensor> with(const Tensor& like, const std::optional<Tensor>& fourth,
                         const std::optional<Tensor>& fifth) const {
    const auto or_nothing = [&](const std::optional<Tensor>& tensor) {
      return tensor ? *tensor : Api::empty(like, {0});
    };
    return {or_nothing(input), or_nothing(weights), or_nothing(bias), or_nothing(fourth),
            or_nothing(fifth)};
  }
};

}  // namespace LLTM_CELL
}  // namespace lltm
