// The CUDA host functions and kernels of the cell that LLTM_CELL names on CPU tensors: ops in the
// namespace LLTM_NAMESPACE.
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>

#include "csrc/contract.h"
#include "csrc/host/any_sequence.h"
#include "csrc/host/cuda_device.h"
#include "shim_api.h"

namespace lltm::stable {
namespace {

auto& sequence = any_sequence_op<CudaDevice<ShimApi>>;
auto& sequence_forward = any_sequence_forward_op<CudaDevice<ShimApi>>;
auto& sequence_backward = any_sequence_backward_op<CudaDevice<ShimApi>>;

}  // namespace
}  // namespace lltm::stable

// torch's macros take their argument literally; these expand it first.
#define LLTM_LIBRARY(name, m) STABLE_TORCH_LIBRARY(name, m)
#define LLTM_LIBRARY_IMPL(name, key, m) STABLE_TORCH_LIBRARY_IMPL(name, key, m)

LLTM_LIBRARY(LLTM_NAMESPACE, m) {
  m.def(lltm::kAnySequenceSchema);
  m.def(lltm::kAnySequenceForwardSchema);
  m.def(lltm::kAnySequenceBackwardSchema);
  lltm::stable::define_device(m);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CPU, m) {
  using namespace lltm::stable;
  m.impl("sequence", TORCH_BOX(&sequence));
  m.impl("sequence_forward", TORCH_BOX(&sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&sequence_backward));
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CompositeExplicitAutograd, m) {
  lltm::stable::implement_device(m);
}
