// What the host functions need of torch, on its stable ABI.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "../checks.h"
#include "../cpu/types.h"
#include "../host/matrix.h"

namespace lltm::stable {

template <class T>
struct TorchDtype;
template <>
struct TorchDtype<float> {
  static int32_t value() { return aoti_torch_dtype_float32(); }
};
template <>
struct TorchDtype<double> {
  static int32_t value() { return aoti_torch_dtype_float64(); }
};
template <>
struct TorchDtype<cpu::BFloat16> {
  static int32_t value() { return aoti_torch_dtype_bfloat16(); }
};
template <>
struct TorchDtype<cpu::Half> {
  static int32_t value() { return aoti_torch_dtype_float16(); }
};

inline void check(AOTITorchError error, const char* what) {
  STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS, "lltm: torch could not ", what,
                  "; its own message is above");
}

struct Api {
  using Tensor = torch::stable::Tensor;
  using Needs = std::vector<bool>;

  static bool same_device(const Tensor& a, const Tensor& b) {
    return a.device().type() == b.device().type() && a.get_device_index() == b.get_device_index();
  }
  static std::string device_name(const Tensor& tensor) {
    using torch::headeronly::DeviceType;
    const DeviceType type = tensor.device().type();
    if (type == DeviceType::CPU) return "cpu";
    if (type == DeviceType::Meta) return "meta";
    const std::string index = std::to_string(tensor.get_device_index());
    if (type == DeviceType::CUDA) return "cuda:" + index;
    return "device type " + std::to_string(static_cast<int>(type)) + ":" + index;
  }

  static Tensor contiguous(const Tensor& tensor) {
    return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
  }

  static Tensor empty(const Tensor& like, std::initializer_list<int64_t> sizes) {
    int32_t dtype;
    check(aoti_torch_get_dtype(like.get(), &dtype), "read a dtype");
    return empty_of(dtype, like, sizes);
  }

  // On the device of `like`.
  static Tensor empty_of(int32_t dtype, const Tensor& like, std::initializer_list<int64_t> sizes) {
    int64_t strides[4];
    int64_t stride = 1;
    bool fits = true;
    for (size_t i = sizes.size(); i-- > 0;) {
      strides[i] = stride;
      const int64_t size = sizes.begin()[i] > 0 ? sizes.begin()[i] : 1;
      if (i > 0) fits = fits && !__builtin_mul_overflow(stride, size, &stride);
    }
    const auto shape = [&] {
      return shape_string(sizes.begin(), static_cast<int64_t>(sizes.size()));
    };
    STD_TORCH_CHECK(fits, "lltm: a tensor of shape ", shape(), " has strides beyond 2^63");
    int32_t device_type;
    check(aoti_torch_get_device_type(like.get(), &device_type), "read a device");
    AtenTensorHandle handle;
    const auto error =
        aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.begin(), strides, dtype,
                                 device_type, like.get_device_index(), &handle);
    STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS,
                    "lltm: torch could not allocate a tensor of shape ", shape(),
                    "; its own message is above");
    return Tensor(handle);
  }

  template <class T>
  static bool has_type(const Tensor& tensor) {
    int32_t dtype;
    check(aoti_torch_get_dtype(tensor.get(), &dtype), "read a dtype");
    return dtype == TorchDtype<T>::value();
  }

  template <class T>
  static Tensor empty_of_type(const Tensor& like, std::initializer_list<int64_t> sizes) {
    return empty_of(TorchDtype<T>::value(), like, sizes);
  }

  template <class T>
  static const T* data(const Tensor& tensor) {
    return static_cast<const T*>(tensor.const_data_ptr());
  }
  template <class T>
  static T* mutable_data(const Tensor& tensor) {
    return static_cast<T*>(tensor.mutable_data_ptr());
  }

  template <class Body>
  static void parallel_for(int64_t count, int64_t grain, const Body& body) {
    if (count <= grain) {
      if (count > 0) body(0, count);
      return;
    }
    torch::stable::parallel_for(0, count, grain, body);
  }

 protected:
  template <class T>
  static Tensor borrow(const Matrix<T>& matrix, int32_t device_type, int32_t device_index) {
    const int64_t sizes[] = {matrix.rows, matrix.columns};
    const int64_t strides[] = {matrix.row_stride, matrix.column_stride};
    using Stored = std::remove_const_t<T>;
    AtenTensorHandle handle;
    check(aoti_torch_create_tensor_from_blob(const_cast<Stored*>(matrix.data), 2, sizes, strides, 0,
                                             TorchDtype<Stored>::value(), device_type, device_index,
                                             &handle),
          "wrap a matrix");
    return Tensor(handle);
  }
};

}  // namespace lltm::stable
