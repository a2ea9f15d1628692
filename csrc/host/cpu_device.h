// The CPU, as the ops' host functions see a device.
#pragma once

#include "cell.h"
#include "passes.h"
#include "steps_backward.h"
#include "steps_forward.h"

namespace lltm {
inline namespace LLTM_CELL {

// What a device has: an Api, a constructor that makes it the current one for as long as it lives,
// and a `run` for each pass, whose arrays are on it. `like` is a tensor of the pass's dtype on it.
template <class Api_>
struct CpuDevice {
  using Api = Api_;
  using Tensor = typename Api::Tensor;

  explicit CpuDevice(const Tensor&) {}

  template <class T>
  void run(const CellForward<T>& args, const Tensor&) const {
    cell_forward<Api>(args);
  }
  template <class T>
  void run(const CellBackward<T>& args, const Tensor&) const {
    cell_backward<Api>(args);
  }
  template <class T>
  void run(const SequenceForward<T>& args, const Tensor&) const {
    sequence_steps_forward<Api>(args);
  }
  template <class T>
  void run(const SequenceBackward<T>& args, const Tensor&) const {
    sequence_backward<Api>(args);
  }
};

}  // namespace LLTM_CELL
}  // namespace lltm
