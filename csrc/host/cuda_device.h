// A GPU, as the ops' host functions see a device; see cpu_device.h.
#pragma once

#include "cell_cuda.h"
#include "passes.h"
#include "sequence_cuda.h"

namespace lltm {

template <class Api_>
class CudaDevice {
 public:
  using Api = Api_;
  using Tensor = typename Api::Tensor;

  explicit CudaDevice(const Tensor& tensor) : queue_(tensor) {}

  template <class T>
  void run(const CellForward<T>& args, const Tensor& like) const {
    cell_forward_cuda<Api>(queue_, args, like);
  }
  template <class T>
  void run(const CellBackward<T>& args, const Tensor& like) const {
    cell_backward_cuda<Api>(queue_, args, like);
  }
  template <class T>
  void run(const SequenceForward<T>& args, const Tensor& like) const {
    sequence_forward_cuda<Api>(queue_, args, like);
  }
  template <class T>
  void run(const SequenceBackward<T>& args, const Tensor& like) const {
    sequence_backward_cuda<Api>(queue_, args, like);
  }

 private:
  typename Api::Queue queue_;
};

}  // namespace lltm
