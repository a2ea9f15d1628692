// What the CUDA host functions need of torch, on ATen.
#pragma once

#include <ATen/DeviceGuard.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "../cuda/kernels.h"
#include "../host/matrix.h"
#include "api.h"

// From libtorch_cuda. torch's own CUDA headers include CUDA's and need a CUDA build of torch; with
// this one function of its C interface the binding compiles against every build.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                             void** ret_stream);

namespace lltm::native {

struct CudaApi : Api {
  // Where work goes: makes the device of a tensor the current one for as long as it lives, and
  // names that device's current stream.
  class Queue {
   public:
    explicit Queue(const Tensor& tensor) : device_(tensor.device()), guard_(device_) {
      TORCH_CHECK(
          aoti_torch_get_current_cuda_stream(device_.index(), &stream_) == AOTI_TORCH_SUCCESS,
          "lltm: torch could not name the current CUDA stream of ", device_.str());
      cuda::set_device(device_.index());
    }

    cuda::Stream stream() const { return static_cast<cuda::Stream>(stream_); }
    at::Device device() const { return device_; }

   private:
    at::Device device_;
    at::DeviceGuard guard_;
    void* stream_ = nullptr;
  };

  // Device memory for `count` values of T, freed to the stream it was taken on.
  template <class T>
  static Tensor scratch(const Tensor& like, int64_t count) {
    return at::empty({count}, like.options().dtype(TorchDtype<T>::value));
  }

  // c = a b, through the BLAS that torch uses: tensor cores for the 16-bit types, and TF32 where
  // torch.backends.cuda.matmul allows it.
  template <class T>
  static void matmul(const Queue& queue, const Matrix<T>& c, const Matrix<const T>& a,
                     const Matrix<const T>& b) {
    multiply(queue.device(), c, a, b);
  }
};

}  // namespace lltm::native
