// What every op takes and returns, and the checks on it, shared by both bindings.
//
// B batch, T time, F input features, S state size. Host functions are templates over an Api, the
// little of torch that they need, which each binding provides (stable/api.h, native/api.h).
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "cell.h"

namespace lltm {
inline namespace LLTM_CELL {

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

// Inference step by step. weights [3S, S + F] -> what stream_step reads in their place, laid out
// for this process's processor.
constexpr const char* kPackSchema = "pack(Tensor weights) -> Tensor";
// input [B, F], old_h [B, S] -> new_h [B, S]; cell [B, S] advances in place. No derivative.
constexpr const char* kStreamStepSchema =
    "stream_step(Tensor input, Tensor packed, Tensor? bias, Tensor old_h, Tensor(a!) cell, "
    "Tensor(b!) new_h, float alpha=1.0) -> ()";

// Name of the CPU kernels' instruction set in use.
constexpr const char* kCpuCapabilitySchema = "cpu_capability() -> str";

// Positions in needs_input_grad.
enum Argument { kInput, kWeights, kBias, kOldH, kOldCell, kArguments };

// Sizes ------------------------------------------------------------------------------------------

struct CellSizes {
  int64_t batch;      // B
  int64_t features;   // F
  int64_t state;      // S
  int64_t heads = 1;  // H

  int64_t gates() const { return Cell::kGates * state; }      // rows of weights
  int64_t head() const { return state / heads; }              // columns of weights for h
  int64_t width() const { return state / heads + features; }  // columns of weights
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

// As Python writes it.
inline std::string dtype_name(torch::headeronly::ScalarType dtype) {
  using torch::headeronly::ScalarType;
  switch (dtype) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    default:
      return toString(dtype);
  }
}

// Every product of sizes that a host function computes must fit, in bytes of the widest type. An
// expanded tensor has any size without having the memory.
inline void check_sizes(const char* op, const SequenceSizes& sizes) {
  bool fits = true;
  const auto times = [&](int64_t a, int64_t b) {
    int64_t product = 0;
    fits = fits && !__builtin_mul_overflow(a, b, &product);
    return product;
  };
  const int64_t state = sizes.cell.state, gates = times(std::max(Cell::kPre, Cell::kSaved), state),
                features = sizes.cell.features;
  int64_t width = 0;
  fits = fits && !__builtin_add_overflow(state, features, &width);
  const int64_t widest = sizeof(double), row = times(widest, std::max(gates, width));
  times(row, std::max(gates, width));
  times(row, times(sizes.steps, sizes.cell.batch));
  STD_TORCH_CHECK(fits, "lltm::", op,
                  ": the tensors must have fewer than 2^63 bytes each, got T = ", sizes.steps,
                  ", B = ", sizes.cell.batch, ", F = ", features, ", S = ", state);
}

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
                  " must have the dtype of input, ", dtype_name(input.scalar_type()), ", got ",
                  dtype_name(tensor.scalar_type()));
  STD_TORCH_CHECK(Api::same_device(tensor, input), "lltm::", op, ": ", name,
                  " must be on the device of input, ", Api::device_name(input), ", got ",
                  Api::device_name(tensor));
}

template <class Tensor>
void check_dtype(const char* op, const char* name, const Tensor& tensor) {
  using torch::headeronly::ScalarType;
  const ScalarType dtype = tensor.scalar_type();
  STD_TORCH_CHECK(dtype == ScalarType::Float || dtype == ScalarType::Double ||
                      dtype == ScalarType::BFloat16 || dtype == ScalarType::Half,
                  "lltm::", op, ": ", name, " must be float32, float64, bfloat16 or float16, got ",
                  dtype_name(dtype));
}

template <class Api, class Tensor>
void check_bias(const char* op, const std::optional<Tensor>& bias, const Tensor& input,
                int64_t state) {
  if (!bias) return;
  check_kind<Api>(op, "bias", *bias, input);
  if (bias->dim() == 1) {
    check_shape(op, "bias", *bias, "[3S] or [1, 3S]", {Cell::kGates * state});
  } else {
    check_shape(op, "bias", *bias, "[3S] or [1, 3S]", {1, Cell::kGates * state});
  }
}

inline void check_alpha(const char* op, double alpha, torch::headeronly::ScalarType dtype) {
  STD_TORCH_CHECK(std::isfinite(alpha) && alpha >= 0, "lltm::", op,
                  ": alpha must be finite and not negative, got ", alpha);
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  STD_TORCH_CHECK(dtype == torch::headeronly::ScalarType::Double || alpha <= kFloatMax,
                  "lltm::", op, ": alpha must be at most ", kFloatMax,
                  " unless input is float64, got ", alpha);
}

// The arguments that cell and sequence have in common; `input` has been checked for rank.
template <class Api, class Tensor>
CellSizes check_common(const char* op, const char* h_name, const char* c_name, const Tensor& input,
                       const Tensor& weights, const std::optional<Tensor>& bias, const Tensor& h,
                       const Tensor& c, double alpha) {
  check_dtype(op, "input", input);
  check_kind<Api>(op, "weights", weights, input);
  check_kind<Api>(op, h_name, h, input);
  check_kind<Api>(op, c_name, c, input);
  STD_TORCH_CHECK(h.dim() == 2, "lltm::", op, ": ", h_name, " must have 2 dimensions [B, S], got ",
                  shape_string(h));
  const CellSizes sizes{input.size(input.dim() - 2), input.size(input.dim() - 1), h.size(1)};
  check_sizes(op, {input.dim() == 3 ? input.size(0) : 1, sizes});
  check_shape(op, h_name, h, "[B, S]", {sizes.batch, sizes.state});
  check_shape(op, c_name, c, "[B, S]", {sizes.batch, sizes.state});
  check_shape(op, "weights", weights, "[3S, S + F]", {sizes.gates(), sizes.width()});
  check_bias<Api>(op, bias, input, sizes.state);
  check_alpha(op, alpha, input.scalar_type());
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

// weights [3S, S + F] alone; the batch is 0.
template <class Tensor>
CellSizes check_weights(const char* op, const Tensor& weights) {
  check_defined(op, "weights", weights);
  check_dtype(op, "weights", weights);
  const bool is_matrix = weights.dim() == 2;
  const int64_t state = is_matrix ? weights.size(0) / Cell::kGates : 0;
  STD_TORCH_CHECK(is_matrix && weights.size(0) == Cell::kGates * state && weights.size(1) >= state,
                  "lltm::", op, ": weights must have shape [3S, S + F], got ",
                  shape_string(weights));
  const CellSizes sizes{0, weights.size(1) - state, state};
  check_sizes(op, {1, sizes});
  return sizes;
}

// A tensor that stream_step writes.
template <class Api, class Tensor>
void check_written(const char* name, const Tensor& tensor, const Tensor& input,
                   const CellSizes& sizes) {
  check_kind<Api>("stream_step", name, tensor, input);
  check_shape("stream_step", name, tensor, "[B, S]", {sizes.batch, sizes.state});
  STD_TORCH_CHECK(tensor.is_contiguous(), "lltm::stream_step: ", name,
                  " is written in place and must be contiguous, got one that is not");
}

template <class Api, class Tensor>
CellSizes check_stream(const Tensor& input, const std::optional<Tensor>& bias, const Tensor& old_h,
                       const Tensor& cell, const Tensor& new_h, double alpha) {
  const char* op = "stream_step";
  check_defined(op, "input", input);
  STD_TORCH_CHECK(input.dim() == 2, "lltm::", op, ": input must have 2 dimensions [B, F], got ",
                  shape_string(input));
  check_dtype(op, "input", input);
  check_kind<Api>(op, "old_h", old_h, input);
  STD_TORCH_CHECK(old_h.dim() == 2, "lltm::", op, ": old_h must have 2 dimensions [B, S], got ",
                  shape_string(old_h));
  const CellSizes sizes{input.size(0), input.size(1), old_h.size(1)};
  check_sizes(op, {1, sizes});
  check_shape(op, "old_h", old_h, "[B, S]", {sizes.batch, sizes.state});
  check_written<Api>("cell", cell, input, sizes);
  check_written<Api>("new_h", new_h, input, sizes);
  check_bias<Api>(op, bias, input, sizes.state);
  check_alpha(op, alpha, input.scalar_type());
  return sizes;
}

// What `pack` made of weights for these sizes; C is the type that input is computed in.
template <class Api, class C, class Tensor>
void check_packed(const Tensor& packed, const Tensor& input, int64_t elements) {
  check_defined("stream_step", "packed", packed);
  STD_TORCH_CHECK(Api::template has_type<C>(packed) && Api::same_device(packed, input) &&
                      packed.dim() == 1 && packed.size(0) == elements && packed.is_contiguous(),
                  "lltm::stream_step: packed must be what lltm::pack made of weights [3S, S + F], ",
                  elements, " elements, got ", packed.is_contiguous() ? "" : "non-contiguous ",
                  shape_string(packed), " of dtype ", dtype_name(packed.scalar_type()));
}

// Bytes that stream_step reads or writes.
struct Span {
  const char* name;
  const void* begin;
  int64_t bytes;
};

inline bool overlap(const Span& a, const Span& b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.begin);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.begin);
  return a.bytes > 0 && b.bytes > 0 && a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

// A step reads all along: what it writes is nothing that it reads, neither whole nor in part, but
// for `cell`, whose elements it reads before it writes them.
inline void check_apart(const Span& written, std::initializer_list<Span> others) {
  for (const Span& other : others) {
    STD_TORCH_CHECK(!overlap(written, other), "lltm::stream_step: ", written.name,
                    " is written in place and must share no memory with ", other.name,
                    ", got tensors that do; clone one of them");
  }
}

// A saved tensor or an output gradient of a backward op.
template <class Api, class Tensor>
void check_backward(const char* op, const char* name, const Tensor& tensor, const Tensor& input,
                    const char* terms, std::initializer_list<int64_t> expected) {
  check_kind<Api>(op, name, tensor, input);
  check_shape(op, name, tensor, terms, expected);
}

// The arguments of cell_backward but needs_input_grad.
template <class Api, class Tensor>
CellSizes check_cell_backward(const std::optional<Tensor>& grad_h,
                              const std::optional<Tensor>& grad_cell, const Tensor& input,
                              const Tensor& weights, const std::optional<Tensor>& bias,
                              const Tensor& old_h, const Tensor& old_cell, const Tensor& new_cell,
                              const Tensor& gates, double alpha) {
  const char* op = "cell_backward";
  const CellSizes sizes = check_cell<Api>(op, input, weights, bias, old_h, old_cell, alpha);
  const int64_t batch = sizes.batch, state = sizes.state;
  check_backward<Api>(op, "new_cell", new_cell, input, "[B, S]", {batch, state});
  check_backward<Api>(op, "gates", gates, input, "[B, 3S]", {batch, Cell::kSaved * state});
  if (grad_h) check_backward<Api>(op, "grad_new_h", *grad_h, input, "[B, S]", {batch, state});
  if (grad_cell) {
    check_backward<Api>(op, "grad_new_cell", *grad_cell, input, "[B, S]", {batch, state});
  }
  return sizes;
}

// The arguments of sequence_backward but needs_input_grad.
template <class Api, class Tensor>
SequenceSizes check_sequence_backward(const std::optional<Tensor>& grad_output,
                                      const std::optional<Tensor>& grad_h_n,
                                      const std::optional<Tensor>& grad_c_n, const Tensor& input,
                                      const Tensor& weights, const std::optional<Tensor>& bias,
                                      const Tensor& h0, const Tensor& c0, const Tensor& output,
                                      const Tensor& cells, const Tensor& gates, double alpha) {
  const char* op = "sequence_backward";
  const SequenceSizes sizes = check_sequence<Api>(op, input, weights, bias, h0, c0, alpha);
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const auto check = [&](const char* name, const Tensor& tensor, const char* terms,
                         std::initializer_list<int64_t> expected) {
    check_backward<Api>(op, name, tensor, input, terms, expected);
  };
  check("output", output, "[T, B, S]", {steps, batch, state});
  check("cells", cells, "[T, B, S]", {steps, batch, state});
  check("gates", gates, "[T, B, 3S]", {steps, batch, Cell::kSaved * state});
  if (grad_output) check("grad_output", *grad_output, "[T, B, S]", {steps, batch, state});
  if (grad_h_n) check("grad_h_n", *grad_h_n, "[B, S]", {batch, state});
  if (grad_c_n) check("grad_c_n", *grad_c_n, "[B, S]", {batch, state});
  return sizes;
}

}  // namespace LLTM_CELL
}  // namespace lltm
