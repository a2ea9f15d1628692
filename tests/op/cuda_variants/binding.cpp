// The variant's ops. Compiled by nvcc they are CUDA's, in lltm_packed_accessor; by g++ against the
// shim they are the CPU's, in lltm_packed_accessor too.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <tuple>

#include "packed_accessor.h"

#if defined(LLTM_CUDA_SHIM)
#define LLTM_VARIANT_KEY CPU
#else
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream);
#define LLTM_VARIANT_KEY CUDA
#endif

namespace packed_accessor {
namespace {

using torch::stable::Tensor;
constexpr int kThreads = 128;

lltm::cuda::Stream current_stream([[maybe_unused]] const Tensor& tensor) {
#if defined(LLTM_CUDA_SHIM)
  return nullptr;
#else
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<lltm::cuda::Stream>(stream);
#endif
}

template <class T, int N>
PackedAccessor<T, N> pack(const Tensor& tensor) {
  PackedAccessor<T, N> packed{static_cast<T*>(tensor.data_ptr()), {}, {}};
  for (int dim = 0; dim < N; ++dim) {
    packed.sizes[dim] = tensor.size(dim);
    packed.strides[dim] = tensor.stride(dim);
  }
  return packed;
}

template <class Body>
void dispatch(const Tensor& tensor, const Body& body) {
  using torch::headeronly::ScalarType;
  if (tensor.scalar_type() == ScalarType::Double) return body(double());
  STD_TORCH_CHECK(tensor.scalar_type() == ScalarType::Float, "float32 or float64");
  body(float());
}

Tensor forward_op(const Tensor& gates, const Tensor& old_cell, const Tensor& new_h,
                  const Tensor& new_cell, double alpha) {
  dispatch(gates, [&](auto zero) {
    using T = decltype(zero);
    lltm::cuda::launch("run the packed-accessor forward", forward<T>,
                       lltm::cuda::cover(old_cell.numel(), kThreads), current_stream(gates),
                       pack<T, 3>(gates), pack<T, 2>(old_cell), pack<T, 2>(new_h),
                       pack<T, 2>(new_cell), static_cast<T>(alpha));
  });
  return new_h;
}

Tensor backward_op(const Tensor& grad_h, const Tensor& grad_cell, const Tensor& gates,
                   const Tensor& new_cell, const Tensor& d_gates, const Tensor& d_old_cell,
                   double alpha) {
  dispatch(gates, [&](auto zero) {
    using T = decltype(zero);
    lltm::cuda::launch("run the packed-accessor backward", backward<T>,
                       lltm::cuda::cover(new_cell.numel(), kThreads), current_stream(gates),
                       pack<T, 2>(grad_h), pack<T, 2>(grad_cell), pack<T, 3>(gates),
                       pack<T, 2>(new_cell), pack<T, 3>(d_gates), pack<T, 2>(d_old_cell),
                       static_cast<T>(alpha));
  });
  return d_old_cell;
}

}  // namespace
}  // namespace packed_accessor

STABLE_TORCH_LIBRARY(lltm_packed_accessor, m) {
  m.def(
      "forward(Tensor gates, Tensor old_cell, Tensor new_h, Tensor new_cell, float alpha)"
      " -> Tensor");
  m.def(
      "backward(Tensor grad_h, Tensor grad_cell, Tensor gates, Tensor new_cell, Tensor d_gates,"
      " Tensor d_old_cell, float alpha) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lltm_packed_accessor, LLTM_VARIANT_KEY, m) {
  m.impl("forward", TORCH_BOX(&packed_accessor::forward_op));
  m.impl("backward", TORCH_BOX(&packed_accessor::backward_op));
}
