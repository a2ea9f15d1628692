// The CUDA host functions and kernels on CPU tensors: ops in the namespace lltm_cuda_shim.
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>

#include <string>
#include <tuple>

#include "banks.h"
#include "csrc/contract.h"
#include "csrc/cuda/kernels.h"
#include "csrc/cuda/storage.h"
#include "csrc/host/cell_cuda.h"
#include "csrc/host/sequence_cuda.h"
#include "csrc/stable/api.h"
#include "device.h"
#include "selftest.h"

namespace lltm::stable {
namespace {

struct ShimApi : Api {
  struct Queue {
    explicit Queue(const Tensor&) {}
    cuda::Stream stream() const { return nullptr; }
  };

  template <class T>
  static Tensor scratch(const Tensor& like, int64_t count) {
    return empty_of(TorchDtype<T>::value(), like, {count});
  }

  // Not torch's: that of a 16-bit type may let the nan of a row into another one.
  template <class T>
  static void matmul(const Queue&, const Matrix<T>& c, const Matrix<const T>& a,
                     const Matrix<const T>& b) {
    ++products;
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        cuda::compute_t<T> sum = 0;
        for (int64_t k = 0; k < a.columns; ++k) {
          sum += cuda::widen(a.data[i * a.row_stride + k * a.column_stride]) *
                 cuda::widen(b.data[k * b.row_stride + j * b.column_stride]);
        }
        cuda::narrow(sum, c.data[i * c.row_stride + j * c.column_stride]);
      }
    }
  }

  static inline int64_t products = 0;
};

using Tensor = Api::Tensor;

auto& cell = cell_cuda<ShimApi>;
auto& cell_forward = cell_forward_cuda<ShimApi>;
auto& cell_backward = cell_backward_cuda<ShimApi>;
auto& sequence = sequence_cuda<ShimApi>;
auto& sequence_forward = sequence_forward_cuda<ShimApi>;
auto& sequence_backward = sequence_backward_cuda<ShimApi>;

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

int64_t configure(int64_t schedule, int64_t seed, int64_t multiprocessors, int64_t first_block,
                  int64_t launch_error) {
  cuda_shim::Device& device = cuda_shim::device();
  device.schedule = static_cast<cuda_shim::Schedule>(schedule);
  device.seed = static_cast<unsigned>(seed);
  device.multiprocessors = static_cast<int>(multiprocessors);
  device.first_block = static_cast<unsigned>(first_block);
  device.launch_error = static_cast<int>(launch_error);
  return 0;
}

// Kernel launches, cooperative ones among them, and matrix products since the process began.
std::tuple<int64_t, int64_t, int64_t> counts() {
  const cuda_shim::Device& device = cuda_shim::device();
  return {device.launches, device.cooperative_launches, ShimApi::products};
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
  m.def(
      "configure(int schedule, int seed, int multiprocessors, int first_block, int launch_error)"
      " -> int");
  m.def("counts() -> (int, int, int)");
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
  m.impl("configure", TORCH_BOX(&lltm::stable::configure));
  m.impl("counts", TORCH_BOX(&lltm::stable::counts));
  m.impl("bank_conflicts", TORCH_BOX(&lltm::stable::bank_conflicts));
}
