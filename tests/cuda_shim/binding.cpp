// The CUDA host functions and kernels on CPU tensors: ops in the namespace lltm_cuda_shim.
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>

#include <string>
#include <tuple>

#include "banks.h"
#include "csrc/contract.h"
#include "csrc/cuda/kernels.h"
#include "csrc/host/cuda_device.h"
#include "csrc/host/lltm_sequence.h"
#include "csrc/host/lltm_step.h"
#include "csrc/stable/api.h"
#include "selftest.h"
#include "shim_api.h"

namespace lltm::stable {
namespace {

using Tensor = Api::Tensor;

auto& cell = cell_op<CudaDevice<ShimApi>>;
auto& cell_forward = cell_forward_op<CudaDevice<ShimApi>>;
auto& cell_backward = cell_backward_op<CudaDevice<ShimApi>>;
auto& sequence = sequence_op<CudaDevice<ShimApi>>;
auto& sequence_forward = sequence_forward_op<CudaDevice<ShimApi>>;
auto& sequence_backward = sequence_backward_op<CudaDevice<ShimApi>>;

// The gate kernel alone, on bfloat16 tensors in the shapes of cuda/kernels.h, into outputs that
// came.
Tensor gates_forward(const Tensor& z, const Tensor& old_cell, const Tensor& new_h,
                     const Tensor& new_cell) {
  using T = cuda::BFloat16;
  cuda::GatesForward<T> args{old_cell.size(0), old_cell.size(1), {1.0}};
  args.z_input = Api::data<T>(z);
  args.old_state[0] = args.old_state[1] = Api::data<T>(old_cell);  // h is not read
  args.new_state[0] = Api::mutable_data<T>(new_h);
  args.new_state[1] = Api::mutable_data<T>(new_cell);
  cuda::gates_forward(args, nullptr);
  return new_h;
}

int64_t bank_conflicts(std::string dtype) { return cuda_shim::bank_conflicts(dtype); }

// The shim's own test: `to` [64] takes what the kernel saw; see selftest.h.
Tensor selftest(const Tensor& to, std::string what) {
  int64_t* data = Api::mutable_data<int64_t>(to);
  if (what == "race") cuda_shim::run_exchange(data, false);
  if (what == "barrier") cuda_shim::run_exchange(data, true);
  if (what == "divided barrier") cuda_shim::run_divided_barrier();
  if (what == "endless wait") cuda_shim::run_endless_wait();
  return to;
}

}  // namespace
}  // namespace lltm::stable

STABLE_TORCH_LIBRARY(lltm_cuda_shim, m) {
  m.def(lltm::kCellSchema);
  m.def(lltm::kCellForwardSchema);
  m.def(lltm::kCellBackwardSchema);
  m.def(lltm::kSequenceSchema);
  m.def(lltm::kSequenceForwardSchema);
  m.def(lltm::kSequenceBackwardSchema);
  // Of the CPU alone; defined because whatever registers fakes for a library expects them.
  m.def(lltm::kPackSchema);
  m.def(lltm::kStreamStepSchema);
  m.def("gates_forward(Tensor z, Tensor old_cell, Tensor new_h, Tensor new_cell) -> Tensor");
  m.def("selftest(Tensor to, str what) -> Tensor");
  lltm::stable::define_device(m);
  m.def("bank_conflicts(str dtype) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(lltm_cuda_shim, CPU, m) {
  using namespace lltm::stable;
  m.impl("cell", TORCH_BOX(&cell));
  m.impl("cell_forward", TORCH_BOX(&cell_forward));
  m.impl("cell_backward", TORCH_BOX(&cell_backward));
  m.impl("sequence", TORCH_BOX(&sequence));
  m.impl("sequence_forward", TORCH_BOX(&sequence_forward));
  m.impl("sequence_backward", TORCH_BOX(&sequence_backward));
  m.impl("gates_forward", TORCH_BOX(&gates_forward));
  m.impl("selftest", TORCH_BOX(&selftest));
}

STABLE_TORCH_LIBRARY_IMPL(lltm_cuda_shim, CompositeExplicitAutograd, m) {
  lltm::stable::implement_device(m);
  m.impl("bank_conflicts", TORCH_BOX(&lltm::stable::bank_conflicts));
}
