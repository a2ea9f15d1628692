// The ops on torch's stable ABI: one library for every torch from TORCH_TARGET_VERSION on and for
// every CPython, because it contains no Python at all. Those of lltm.cells for the same cell, whose
// kernels are here, are with them.
#include <torch/csrc/stable/library.h>

#include "../contract.h"
#include "../cpu/kernels.h"
#include "../host/cpu_device.h"
#include "../host/lltm_sequence.h"
#include "../host/lltm_step.h"
#include "../host/stream.h"
#include "any_ops.h"
#include "api.h"

namespace lltm::stable {
namespace {

using Tensor = Api::Tensor;

auto& cell = cell_op<CpuDevice<Api>>;
auto& cell_forward = cell_forward_op<CpuDevice<Api>>;
auto& cell_backward = cell_backward_op<CpuDevice<Api>>;
auto& sequence = sequence_op<CpuDevice<Api>>;
auto& sequence_forward = sequence_forward_op<CpuDevice<Api>>;
auto& sequence_backward = sequence_backward_op<CpuDevice<Api>>;
auto& pack = pack_cpu<Api>;
auto& stream_step = stream_step_cpu<Api>;

}  // namespace
}  // namespace lltm::stable

STABLE_TORCH_LIBRARY(lltm, m) {
  m.def(lltm::kCellSchema);
  m.def(lltm::kCellForwardSchema);
  m.def(lltm::kCellBackwardSchema);
  m.def(lltm::kSequenceSchema);
  m.def(lltm::kSequenceForwardSchema);
  m.def(lltm::kSequenceBackwardSchema);
  m.def(lltm::kPackSchema);
  m.def(lltm::kStreamStepSchema);
  m.def(lltm::kCpuCapabilitySchema);
}

STABLE_TORCH_LIBRARY_IMPL(lltm, CPU, m) {
  using namespace lltm::stable;
  m.impl("cell", TORCH_BOX(&cell));
  m.impl("cell_forward", TORCH_BOX(&cell_forward));
  m.impl("cell_backward", TORCH_BOX(&cell_backward));
  m.impl("sequence", TORCH_BOX(&sequence));
  m.impl("sequence_forward", TORCH_BOX(&sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&sequence_backward));
  m.impl("pack", TORCH_BOX(&pack));
  m.impl("stream_step", TORCH_BOX(&stream_step));
}

STABLE_TORCH_LIBRARY_IMPL(lltm, CompositeExplicitAutograd, m) {
  m.impl("cpu_capability", TORCH_BOX(&lltm::stable::cpu_capability));
}
