// Registers the two functions with torch's dispatcher. There is no pybind11 and no Python here: Python
// finds them as torch.ops.NAMESPACE.forward and .backward.
#include <torch/library.h>

#include "cell.h"

// Some torches' macro takes its argument literally; this expands it first.
#define SCRATCH_LIBRARY(name, m) TORCH_LIBRARY(name, m)

// SCRATCH_NAMESPACE comes from the build, so that two builds can be loaded side by side.
SCRATCH_LIBRARY(SCRATCH_NAMESPACE, m) {
  m.def(
      "forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
      "Tensor[]",
      &scratch::forward);
  m.def(
      "backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor input_gate, "
      "Tensor output_gate, Tensor candidate_cell, Tensor X, Tensor gate_weights, Tensor weights) "
      "-> Tensor[]",
      &scratch::backward);
}
