// The ops' CUDA kernels on torch's stable ABI. A library of its own, so that the one with the
// schemas and the CPU kernels loads beside a torch without CUDA, too.
#include <torch/csrc/stable/library.h>

#include "../contract.h"
#include "../host/cuda_device.h"
#include "../host/lltm_sequence.h"
#include "../host/lltm_step.h"
#include "cuda_api.h"

namespace lltm::stable {
namespace {

auto& cell = cell_op<CudaDevice<CudaApi>>;
auto& cell_forward = cell_forward_op<CudaDevice<CudaApi>>;
auto& cell_backward = cell_backward_op<CudaDevice<CudaApi>>;
auto& sequence = sequence_op<CudaDevice<CudaApi>>;
auto& sequence_forward = sequence_forward_op<CudaDevice<CudaApi>>;
auto& sequence_backward = sequence_backward_op<CudaDevice<CudaApi>>;

}  // namespace
}  // namespace lltm::stable

STABLE_TORCH_LIBRARY_IMPL(lltm, CUDA, m) {
  using namespace lltm::stable;
  m.impl("cell", TORCH_BOX(&cell));
  m.impl("cell_forward", TORCH_BOX(&cell_forward));
  m.impl("cell_backward", TORCH_BOX(&cell_backward));
  m.impl("sequence", TORCH_BOX(&sequence));
  m.impl("sequence_forward", TORCH_BOX(&sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&sequence_backward));
}
