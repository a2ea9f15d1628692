// What every op takes and returns, and the checks on it, shared by both bindings.
//
// B batch, T time, F input features, S state size. Host functions are templates over an Api, the
// little of torch that they need, which each binding provides (stable/api.h, native/api.h).
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace lltm {

// Schemas. The order of `weights`' rows is input gate, output gate, candidate cell; its first S
// columns multiply the hidden state, the next F the input. `bias` is [3S], [1, 3S] or absent.
#define LLTM_CELL_ARGUMENTS \
  "(Tensor input, Tensor weights, Tensor? bias, Tensor old_h, Tensor old_cell, float alpha=1.0)"
#define LLTM_SEQUENCE_ARGUMENTS \
  "(Tensor input, Tensor weights, Tensor? bias, Tensor h0, Tensor c0, float alpha=1.0)"

// input [B, F], old_h and old_cell [B, S] -> [B, S] each
constexpr const char* kCellSchema =
    "cell" LLTM_CELL_ARGUMENTS " -> (Tensor new_h, Tensor new_cell)";
// ... and gates [B, 3S]: input_gate, output_gate and the candidate's pre-activation, for backward
constexpr const char* kCellForwardSchema =
    "cell_forward" LLTM_CELL_ARGUMENTS " -> (Tensor new_h, Tensor new_cell, Tensor gates)";
// The gradients, in argument order; one that needs_input_grad does not ask for is not computed and
// has no elements. An absent output gradient is zero.
#define LLTM_GRADIENTS \
  "(Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)"
constexpr const char* kCellBackwardSchema =
    "cell_backward(Tensor? grad_new_h, Tensor? grad_new_cell, Tensor input, Tensor weights, "
    "Tensor? bias, Tensor old_h, Tensor old_cell, Tensor new_cell, Tensor gates, float alpha, "
    "bool[5] needs_input_grad) -> " LLTM_GRADIENTS;

// input [T, B, F], h0 and c0 [B, S] -> output [T, B, S], h_n and c_n [B, S]
constexpr const char* kSequenceSchema =
    "sequence" LLTM_SEQUENCE_ARGUMENTS " -> (Tensor output, Tensor h_n, Tensor c_n)";
// ... and cells [T, B, S], gates [T, B, 3S] for backward
constexpr const char* kSequenceForwardSchema =
    "sequence_forward" LLTM_SEQUENCE_ARGUMENTS
    " -> (Tensor output, Tensor h_n, Tensor c_n, Tensor cells, Tensor gates)";
constexpr const char* kSequenceBackwardSchema =
    "sequence_backward(Tensor? grad_output, Tensor? grad_h_n, Tensor? grad_c_n, Tensor input, "
    "Tensor weights, Tensor? bias, Tensor h0, Tensor c0, Tensor output, Tensor cells, "
    "Tensor gates, float alpha, bool[5] needs_input_grad) -> " LLTM_GRADIENTS;

// The same ops composed of ATen operations (native binding only).
constexpr const char* kCellAtenSchema =
    "cell_aten" LLTM_CELL_ARGUMENTS " -> (Tensor new_h, Tensor new_cell)";
constexpr const char* kSequenceAtenSchema =
    "sequence_aten" LLTM_SEQUENCE_ARGUMENTS " -> (Tensor output, Tensor h_n, Tensor c_n)";

// Name of the CPU kernels' instruction set in use.
constexpr const char* kCpuCapabilitySchema = "cpu_capability() -> str";

// Positions in needs_input_grad.
enum Argument { kInput, kWeights, kBias, kOldH, kOldCell, kArguments };

// Sizes ------------------------------------------------------------------------------------------

struct CellSizes {
  int64_t batch;     // B
  int64_t features;  // F
  int64_t state;     // S
};

struct SequenceSizes {
  int64_t steps;  // T
  CellSizes cell;
};

inline std::string shape_string(const int64_t* sizes, int64_t rank) {
  std::ostringstream text;
  text << '[';
  for (int64_t i = 0; i < rank; ++i) text << (i ? ", " : "") << sizes[i];
  text << ']';
  return text.str();
}

template <class Tensor>
std::string shape_string(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return shape_string(sizes.data(), tensor.dim());
}

// Checks -----------------------------------------------------------------------------------------
// Each names the op, the argument, what was expected and what came.

template <class Tensor>
void check_shape(const char* op, const char* name, const Tensor& tensor, const char* terms,
                 std::initializer_list<int64_t> expected) {
  bool fits = tensor.dim() == static_cast<int64_t>(expected.size());
  int64_t dim = 0;
  for (const int64_t size : expected) fits = fits && tensor.size(dim++) == size;
  STD_TORCH_CHECK(fits, "lltm::", op, ": ", name, " must have shape ", terms, " = ",
                  shape_string(expected.begin(), static_cast<int64_t>(expected.size())), ", got ",
                  shape_string(tensor));
}

// torch passes None for a required tensor as one that is not defined.
template <class Tensor>
void check_defined(const char* op, const char* name, const Tensor& tensor) {
  STD_TORCH_CHECK(tensor.defined(), "lltm::", op, ": ", name, " must be a Tensor, got None");
}

template <class Api, class Tensor>
void check_kind(const char* op, const char* name, const Tensor& tensor, const Tensor& input) {
  check_defined(op, name, tensor);
  STD_TORCH_CHECK(tensor.scalar_type() == input.scalar_type(), "lltm::", op, ": ", name,
                  " must have the dtype of input, ", toString(input.scalar_type()), ", got ",
                  toString(tensor.scalar_type()));
  STD_TORCH_CHECK(Api::same_device(tensor, input), "lltm::", op, ": ", name,
                  " must be on the device of input, ", Api::device_name(input), ", got ",
                  Api::device_name(tensor));
}

// The arguments that cell and sequence have in common; `input` has been checked for rank.
template <class Api, class Tensor>
CellSizes check_common(const char* op, const char* h_name, const char* c_name, const Tensor& input,
                       const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h,
                       const Tensor& c, double alpha) {
  using torch::headeronly::ScalarType;
  const ScalarType dtype = input.scalar_type();
  STD_TORCH_CHECK(dtype == ScalarType::Float || dtype == ScalarType::Double ||
                      dtype == ScalarType::BFloat16 || dtype == ScalarType::Half,
                  "lltm::", op, ": input must be float32, float64, bfloat16 or float16, got ",
                  toString(dtype));
  check_kind<Api>(op, "weights", weights, input);
  check_kind<Api>(op, h_name, h, input);
  check_kind<Api>(op, c_name, c, input);
  STD_TORCH_CHECK(h.dim() == 2, "lltm::", op, ": ", h_name, " must have 2 dimensions [B, S], got ",
                  shape_string(h));
  const CellSizes sizes{input.size(input.dim() - 2), input.size(input.dim() - 1), h.size(1)};
  check_shape(op, h_name, h, "[B, S]", {sizes.batch, sizes.state});
  check_shape(op, c_name, c, "[B, S]", {sizes.batch, sizes.state});
  check_shape(op, "weights", weights, "[3S, S + F]",
              {3 * sizes.state, sizes.state + sizes.features});
  if (bias) {
    check_kind<Api>(op, "bias", *bias, input);
    if (bias->dim() == 1) {
      check_shape(op, "bias", *bias, "[3S] or [1, 3S]", {3 * sizes.state});
    } else {
      check_shape(op, "bias", *bias, "[3S] or [1, 3S]", {1, 3 * sizes.state});
    }
  }
  STD_TORCH_CHECK(std::isfinite(alpha) && alpha >= 0, "lltm::", op,
                  ": alpha must be finite and not negative, got ", alpha);
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  STD_TORCH_CHECK(dtype == ScalarType::Double || alpha <= kFloatMax, "lltm::", op,
                  ": alpha must be at most ", kFloatMax, " unless input is float64, got ", alpha);
  return sizes;
}

template <class Api, class Tensor>
CellSizes check_cell(const char* op, const Tensor& input, const Tensor& weights,
                     const std::optional<Tensor>& bias, const Tensor& old_h, const Tensor& old_cell,
                     double alpha) {
  check_defined(op, "input", input);
  STD_TORCH_CHECK(input.dim() == 2, "lltm::", op, ": input must have 2 dimensions [B, F], got ",
                  shape_string(input));
  return check_common<Api>(op, "old_h", "old_cell", input, weights, bias, old_h, old_cell, alpha);
}

template <class Api, class Tensor>
SequenceSizes check_sequence(const char* op, const Tensor& input, const Tensor& weights,
                             const std::optional<Tensor>& bias, const Tensor& h0, const Tensor& c0,
                             double alpha) {
  check_defined(op, "input", input);
  STD_TORCH_CHECK(input.dim() == 3, "lltm::", op, ": input must have 3 dimensions [T, B, F], got ",
                  shape_string(input));
  return {input.size(0), check_common<Api>(op, "h0", "c0", input, weights, bias, h0, c0, alpha)};
}

// A saved tensor or an output gradient of a backward op.
template <class Api, class Tensor>
void check_backward(const char* op, const char* name, const Tensor& tensor, const Tensor& input,
                    const char* terms, std::initializer_list<int64_t> expected) {
  check_kind<Api>(op, name, tensor, input);
  check_shape(op, name, tensor, terms, expected);
}

}  // namespace lltm
