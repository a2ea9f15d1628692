// The ops on torch's C++ API: built for exactly one torch, with the lowest overhead per call.
#include <torch/library.h>

#include <array>
#include <string>
#include <vector>

#include "../contract.h"
#include "../cpu/kernels.h"
#include "../host/cell.h"
#include "../host/sequence.h"
#include "api.h"
#include "autograd.h"
#include "composed.h"
#include "namespace.h"

namespace lltm::native {
namespace {

using at::Tensor;
using std::optional;
using Needs = std::array<bool, kArguments>;

std::vector<bool> list(const Needs& needs) { return std::vector<bool>(needs.begin(), needs.end()); }

Gradients<Tensor> cell_backward(const optional<Tensor>& grad_new_h,
                                const optional<Tensor>& grad_new_cell, const Tensor& input,
                                const Tensor& weights, const optional<Tensor>& bias,
                                const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                                const Tensor& gates, double alpha, Needs needs) {
  return cell_backward_cpu<Api>(grad_new_h, grad_new_cell, input, weights, bias, old_h, old_cell,
                                new_cell, gates, alpha, list(needs));
}

Gradients<Tensor> sequence_backward(const optional<Tensor>& grad_output,
                                    const optional<Tensor>& grad_h_n,
                                    const optional<Tensor>& grad_c_n, const Tensor& input,
                                    const Tensor& weights, const optional<Tensor>& bias,
                                    const Tensor& h0, const Tensor& c0, const Tensor& output,
                                    const Tensor& cells, const Tensor& gates, double alpha,
                                    Needs needs) {
  return sequence_backward_cpu<Api>(grad_output, grad_h_n, grad_c_n, input, weights, bias, h0, c0,
                                    output, cells, gates, alpha, list(needs));
}

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
  m.def(kCpuCapabilitySchema, &native::cpu_capability);
  m.def(kCellAtenSchema, &native::cell_aten);
  m.def(kSequenceAtenSchema, &native::sequence_aten);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, CPU, m) {
  using namespace lltm::native;
  m.impl("cell", &lltm::cell_cpu<Api>);
  m.impl("cell_forward", &lltm::cell_forward_cpu<Api>);
  m.impl("cell_backward", &cell_backward);
  m.impl("sequence", &lltm::sequence_cpu<Api>);
  m.impl("sequence_forward", &lltm::sequence_forward_cpu<Api>);
  m.impl("sequence_backward", &sequence_backward);
}

LLTM_LIBRARY_IMPL(LLTM_NAMESPACE, Autograd, m) {
  m.impl("cell", &lltm::native::cell_autograd);
  m.impl("sequence", &lltm::native::sequence_autograd);
}
