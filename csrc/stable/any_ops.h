// The ops of the cell that LLTM_CELL names, on torch's stable ABI, in the namespace that
// LLTM_NAMESPACE names.
#pragma once

#include <torch/csrc/stable/library.h>

#include <string>

#include "../contract.h"
#include "../cpu/kernels.h"
#include "../host/any_sequence.h"
#include "../host/cpu_device.h"
#include "api.h"

namespace lltm::stable {
namespace {

auto& any_sequence = any_sequence_op<CpuDevice<Api>>;
auto& any_sequence_forward = any_sequence_forward_op<CpuDevice<Api>>;
auto& any_sequence_backward = any_sequence_backward_op<CpuDevice<Api>>;

std::string cpu_capability() { return cpu::kernels().name; }

}  // namespace
}  // namespace lltm::stable

// torch's macros take their argument literally; these expand it first.
#define LLTM_LIBRARY(name, m) STABLE_TORCH_LIBRARY(name, m)
#define LLTM_LIBRARY_IMPL(name, key, m) STABLE_TORCH_LIBRARY_IMPL(name, key, m)

LLTM_LIBRARY(LLTM_NAMESPACE, m) {
  m.def(lltm::kAnySequenceSchema);
  m.def(lltm::kAnySequenceForwardSchema);
  m.def(lltm::kAnySequenceBackwardSchema);
  m.def(lltm::kCpuCapabilitySchema);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CPU, m) {
  using namespace lltm::stable;
  m.impl("sequence", TORCH_BOX(&any_sequence));
  m.impl("sequence_forward", TORCH_BOX(&any_sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&any_sequence_backward));
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("cpu_capability", TORCH_BOX(&lltm::stable::cpu_capability));
}
