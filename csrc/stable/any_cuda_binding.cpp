// The CUDA kernels of the cell that LLTM_CELL names, for the ops of any_binding.cpp.
#include <torch/csrc/stable/library.h>

#include "../contract.h"
#include "../host/any_sequence.h"
#include "../host/cuda_device.h"
#include "cuda_api.h"

namespace lltm::stable {
namespace {

auto& sequence = any_sequence_op<CudaDevice<CudaApi>>;
auto& sequence_forward = any_sequence_forward_op<CudaDevice<CudaApi>>;
auto& sequence_backward = any_sequence_backward_op<CudaDevice<CudaApi>>;

}  // namespace
}  // namespace lltm::stable

// torch's macro takes its argument literally; this expands it first.
#define LLTM_LIBRARY_IMPL(name, key, m) STABLE_TORCH_LIBRARY_IMPL(name, key, m)

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CUDA, m) {
  using namespace lltm::stable;
  m.impl("sequence", TORCH_BOX(&sequence));
  m.impl("sequence_forward", TORCH_BOX(&sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&sequence_backward));
}
