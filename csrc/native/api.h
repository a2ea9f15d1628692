// What the host functions need of torch, on ATen.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
#include <torch/csrc/stable/c/shim.h>
#endif

#include <array>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "../contract.h"
#include "../cpu/types.h"
#include "../host/matrix.h"

namespace lltm::native {

template <class T>
struct TorchDtype;
template <>
struct TorchDtype<float> {
  static constexpr auto value = at::kFloat;
};
template <>
struct TorchDtype<double> {
  static constexpr auto value = at::kDouble;
};
template <>
struct TorchDtype<cpu::BFloat16> {
  static constexpr auto value = at::kBFloat16;
};
template <>
struct TorchDtype<cpu::Half> {
  static constexpr auto value = at::kHalf;
};

// body(begin, end) over [0, count) on torch's threads. at::parallel_for is a template: compiled
// here it would run on one thread, unless with -fopenmp and by the compiler whose OpenMP torch has.
// From 2.10 on torch exports one that it compiled itself.
template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  const auto run = [](int64_t begin, int64_t end, void* of) {
    (*static_cast<const Body*>(of))(begin, end);
  };
  void* of = const_cast<void*>(static_cast<const void*>(&body));
  TORCH_CHECK(torch_parallel_for(0, count, grain, run, of) == AOTI_TORCH_SUCCESS,
              "lltm: torch_parallel_for failed");
#else
  at::parallel_for(0, count, grain, body);
#endif
}

struct Api {
  using Tensor = at::Tensor;
  using Needs = std::array<bool, kArguments>;

  static bool same_device(const Tensor& a, const Tensor& b) { return a.device() == b.device(); }
  static std::string device_name(const Tensor& tensor) { return tensor.device().str(); }

  static Tensor contiguous(const Tensor& tensor) { return tensor.contiguous(); }

  static Tensor empty(const Tensor& like, std::initializer_list<int64_t> sizes) {
    return at::empty(sizes, like.options());
  }

  template <class T>
  static bool has_type(const Tensor& tensor) {
    return tensor.scalar_type() == TorchDtype<T>::value;
  }

  template <class T>
  static Tensor empty_of_type(const Tensor& like, std::initializer_list<int64_t> sizes) {
    return at::empty(sizes, like.options().dtype(TorchDtype<T>::value));
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
    native::parallel_for(count, grain, body);
  }

 protected:
  template <class T>
  static void multiply(at::Device device, const Matrix<T>& c, const Matrix<const T>& a,
                       const Matrix<const T>& b) {
    Tensor c_tensor = borrow(device, c);
    at::mm_out(c_tensor, borrow(device, a), borrow(device, b));
  }

 private:
  template <class T>
  static Tensor borrow(at::Device device, const Matrix<T>& matrix) {
    using Stored = std::remove_const_t<T>;
    // The device is named, because else torch asks the driver whose memory it is.
    return at::for_blob(const_cast<Stored*>(matrix.data), {matrix.rows, matrix.columns})
        .strides({matrix.row_stride, matrix.column_stride})
        .target_device(device)
        .options(at::device(device).dtype(TorchDtype<Stored>::value))
        .make_tensor();
  }
};

}  // namespace lltm::native
