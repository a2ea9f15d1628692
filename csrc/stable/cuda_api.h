// What the CUDA host functions need of torch, on its stable ABI.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <initializer_list>

#include "../cuda/kernels.h"
#include "../host/matrix.h"
#include "api.h"

// From libtorch_cuda. Declared here, because torch hides them from builds against its CPU wheel.
extern "C" {
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);
AOTITorchError aoti_torch_cuda_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                      AtenTensorHandle mat2);
}

namespace lltm::stable {

struct CudaApi : Api {
  // Where work goes: makes the device of a tensor the current one for as long as it lives, and
  // names that device's current stream.
  class Queue {
   public:
    explicit Queue(const Tensor& tensor)
        : device_(tensor.get_device_index()), guard_(device_), stream_(nullptr) {
      check(aoti_torch_get_current_cuda_stream(device_, &stream_), "name the current CUDA stream");
      cuda::set_device(device_);
    }

    cuda::Stream stream() const { return static_cast<cuda::Stream>(stream_); }
    int32_t device() const { return device_; }

   private:
    int32_t device_;
    torch::stable::accelerator::DeviceGuard guard_;
    void* stream_;
  };

  // Device memory for `count` values of T, freed to the stream it was taken on.
  template <class T>
  static Tensor scratch(const Tensor& like, int64_t count) {
    return empty_of(TorchDtype<T>::value(), like, {count});
  }

  // c = a b, through the BLAS that torch uses: tensor cores for the 16-bit types, and TF32 where
  // torch.backends.cuda.matmul allows it. An empty sum is zero, and there c is dense.
  template <class T>
  static void matmul(const Queue& queue, const Matrix<T>& c, const Matrix<const T>& a,
                     const Matrix<const T>& b) {
    if (c.rows == 0 || c.columns == 0) return;
    if (a.columns == 0) {
      cuda::clear(c.data, c.rows * c.columns * sizeof(T), queue.stream());
      return;
    }
    const int32_t type = aoti_torch_device_type_cuda();
    const Tensor c_tensor = borrow(c, type, queue.device()),
                 a_tensor = borrow(a, type, queue.device()),
                 b_tensor = borrow(b, type, queue.device());
    lltm::stable::check(aoti_torch_cuda_mm_out(c_tensor.get(), a_tensor.get(), b_tensor.get()),
                        "multiply two matrices");
  }
};

}  // namespace lltm::stable
