// The ops on torch's C++ API: built for exactly one torch, with the lowest overhead per call.
//
// autograd.h and composed.h are no sources of their own, because each would read torch's headers
// again, and that takes longer than what is written here.

// ATen's headers leave out the operators that nobody names: a fifth of the lines to compile.
#if !defined(AT_PER_OPERATOR_HEADERS)
#define AT_PER_OPERATOR_HEADERS
#endif
#include <torch/library.h>

#include <string>

#include "../contract.h"
#include "../cpu/kernels.h"
#include "../host/cpu_device.h"
#include "../host/lltm_sequence.h"
#include "../host/lltm_step.h"
#include "../host/stream.h"
#include "api.h"
#include "autograd.h"
#include "composed.h"
#include "namespace.h"

namespace lltm::native {
namespace {

std::string cpu_capability() { return cpu::kernels().name; }

}  // namespace
}  // namespace lltm::native

LLTM_LIBRARY(LLTM_NAMESPACE, m) {
  using namespace lltm;
  m.def(kCellSchema);
  m.def(kCellForwardSchema);
  m.def(kCellBackwardSchema);
  m.def(kSequenceSchema);
  m.def(kSequenceForwardSchema);
  m.def(kSequenceBackwardSchema);
  m.def(kPackSchema);
  m.def(kStreamStepSchema);
  m.def(kCpuCapabilitySchema, &native::cpu_capability);
  m.def(kCellAtenSchema, &native::cell_aten);
  m.def(kSequenceAtenSchema, &native::sequence_aten);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CPU, m) {
  using namespace lltm::native;
  m.impl("cell", &lltm::cell_op<lltm::CpuDevice<Api>>);
  m.impl("cell_forward", &lltm::cell_forward_op<lltm::CpuDevice<Api>>);
  m.impl("cell_backward", &lltm::cell_backward_op<lltm::CpuDevice<Api>>);
  m.impl("sequence", &lltm::sequence_op<lltm::CpuDevice<Api>>);
  m.impl("sequence_forward", &lltm::sequence_forward_op<lltm::CpuDevice<Api>>);
  m.impl("sequence_backward", &lltm::sequence_backward_op<lltm::CpuDevice<Api>>);
  m.impl("pack", &lltm::pack_cpu<Api>);
  m.impl("stream_step", &lltm::stream_step_cpu<Api>);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, Autograd, m) {
  using namespace lltm::native;
  m.impl("cell", &autograd<Cell>);
  m.impl("sequence", &autograd<Sequence>);
}
