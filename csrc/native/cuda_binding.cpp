// The ops' CUDA kernels on torch's C++ API. A library of its own in a wheel, so that the one with
// the schemas and the CPU kernels loads beside a torch without CUDA, too.
#include <torch/library.h>

#include "../contract.h"
#include "../host/cuda_device.h"
#include "../host/lltm_sequence.h"
#include "../host/lltm_step.h"
#include "cuda_api.h"
#include "namespace.h"

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CUDA, m) {
  using lltm::native::CudaApi;
  m.impl("cell", &lltm::cell_op<lltm::CudaDevice<CudaApi>>);
  m.impl("cell_forward", &lltm::cell_forward_op<lltm::CudaDevice<CudaApi>>);
  m.impl("cell_backward", &lltm::cell_backward_op<lltm::CudaDevice<CudaApi>>);
  m.impl("sequence", &lltm::sequence_op<lltm::CudaDevice<CudaApi>>);
  m.impl("sequence_forward", &lltm::sequence_forward_op<lltm::CudaDevice<CudaApi>>);
  m.impl("sequence_backward", &lltm::sequence_backward_op<lltm::CudaDevice<CudaApi>>);
}
