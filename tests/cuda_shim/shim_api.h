// What the CUDA host functions need of torch, on CPU tensors, and the ops that set the device up.
#pragma once

#include <torch/csrc/stable/library.h>

#include <tuple>

#include "csrc/cuda/kernels.h"
#include "csrc/cuda/storage.h"
#include "csrc/stable/api.h"
#include "device.h"

namespace lltm::stable {

struct ShimApi : Api {
  struct Queue {
    explicit Queue(const Tensor&) {}
    cuda::Stream stream() const { return nullptr; }
  };

  template <class T>
  static Tensor scratch(const Tensor& like, int64_t count) {
    return empty_of(TorchDtype<T>::value(), like, {count});
  }

  // Not torch's: that of a 16-bit type may let the nan of a row into another one.
  template <class T>
  static void matmul(const Queue&, const Matrix<T>& c, const Matrix<const T>& a,
                     const Matrix<const T>& b) {
    ++products;
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        cuda::compute_t<T> sum = 0;
        for (int64_t k = 0; k < a.columns; ++k) {
          sum += cuda::widen(a.data[i * a.row_stride + k * a.column_stride]) *
                 cuda::widen(b.data[k * b.row_stride + j * b.column_stride]);
        }
        cuda::narrow(sum, c.data[i * c.row_stride + j * c.column_stride]);
      }
    }
  }

  static inline int64_t products = 0;
};

inline int64_t configure(int64_t schedule, int64_t seed, int64_t multiprocessors,
                         int64_t first_block, int64_t launch_error) {
  cuda_shim::Device& device = cuda_shim::device();
  device.schedule = static_cast<cuda_shim::Schedule>(schedule);
  device.seed = static_cast<unsigned>(seed);
  device.multiprocessors = static_cast<int>(multiprocessors);
  device.first_block = static_cast<unsigned>(first_block);
  device.launch_error = static_cast<int>(launch_error);
  return 0;
}

// Kernel launches, cooperative ones among them, and matrix products since the process began.
inline std::tuple<int64_t, int64_t, int64_t> counts() {
  const cuda_shim::Device& device = cuda_shim::device();
  return {device.launches, device.cooperative_launches, ShimApi::products};
}

template <class Library>
void define_device(Library& m) {
  m.def(
      "configure(int schedule, int seed, int multiprocessors, int first_block, int launch_error)"
      " -> int");
  m.def("counts() -> (int, int, int)");
}

template <class Library>
void implement_device(Library& m) {
  m.impl("configure", TORCH_BOX(&configure));
  m.impl("counts", TORCH_BOX(&counts));
}

}  // namespace lltm::stable
