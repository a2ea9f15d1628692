// The checks on what an op takes, of any cell, step and sequence. Each names the op, the argument,
// what was expected and what came.
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>

#include "contract.h"

namespace lltm {
inline namespace LLTM_CELL {

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

// "[GS, F]" -> "[4S, F]" for a cell of four gates.
inline std::string with_counts(const std::string& terms) {
  std::string text;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool is_count = i + 1 < terms.size() && terms[i + 1] == 'S';
    if (is_count && terms[i] == 'G') {
      text += std::to_string(Cell::kGates);
    } else if (is_count && terms[i] == 'P') {
      text += std::to_string(Cell::kPre);
    } else if (is_count && terms[i] == 'K') {
      text += std::to_string(Cell::kSaved);
    } else {
      text += terms[i];
    }
  }
  return text;
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
void check_rank(const char* op, const char* name, const Tensor& tensor, int64_t rank,
                const char* terms) {
  STD_TORCH_CHECK(tensor.dim() == rank, "lltm::", op, ": ", name, " must have ", rank,
                  " dimensions ", terms, ", got ", shape_string(tensor));
}

// `terms` are the letters of contract.h.
template <class Tensor>
void check_shape(const char* op, const char* name, const Tensor& tensor, const char* terms,
                 std::initializer_list<int64_t> expected) {
  bool fits = tensor.dim() == static_cast<int64_t>(expected.size());
  int64_t dim = 0;
  for (const int64_t size : expected) fits = fits && tensor.size(dim++) == size;
  STD_TORCH_CHECK(fits, "lltm::", op, ": ", name, " must have shape ", with_counts(terms), " = ",
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
  const char* terms = "[PS] or [1, PS]";
  if (bias->dim() == 1) {
    check_shape(op, "bias", *bias, terms, {Cell::kPre * state});
  } else {
    check_shape(op, "bias", *bias, terms, {1, Cell::kPre * state});
  }
}

template <class Api, class Tensor>
void check_states_kind(const char* op, const StateArguments<Tensor>& states, const Tensor& input) {
  for (int i = 0; i < states.count(); ++i) {
    check_kind<Api>(op, states.of[i].name, *states.of[i].tensor, input);
  }
}

template <class Tensor>
void check_states_shape(const char* op, const StateArguments<Tensor>& states,
                        const CellSizes& sizes) {
  for (int i = 0; i < states.count(); ++i) {
    const auto& [name, tensor] = states.of[i];
    if (!tensor) continue;
    if (states.is_stacked) {
      check_shape(op, name, *tensor, "[N, B, S]", {Cell::kStates, sizes.batch, sizes.state});
    } else {
      check_shape(op, name, *tensor, "[B, S]", {sizes.batch, sizes.state});
    }
  }
}

// States each of which may be absent.
template <class Api, class Tensor>
void check_optional_states(const char* op, const StateArguments<Tensor>& states,
                           const Tensor& input, const CellSizes& sizes) {
  for (int i = 0; i < states.count(); ++i) {
    const auto& [name, tensor] = states.of[i];
    if (tensor) check_kind<Api>(op, name, *tensor, input);
  }
  check_states_shape(op, states, sizes);
}

// How many heads the columns of weights leave, `features` of which are the input's.
template <class Tensor>
int64_t check_heads(const char* op, const Tensor& weights, const char* terms, int64_t features,
                    int64_t state) {
  STD_TORCH_CHECK(weights.dim() == 2 && weights.size(0) == Cell::kGates * state, "lltm::", op,
                  ": weights must have shape ", with_counts(terms), " with S = ", state, ", got ",
                  shape_string(weights));
  const int64_t head = weights.size(1) - features;
  const bool divides = state == 0 ? head == 0 : head > 0 && state % head == 0;
  STD_TORCH_CHECK(divides, "lltm::", op, ": weights must have shape ", with_counts(terms),
                  " with H heads, of which S = ", state, " is a multiple, and F = ", features,
                  ", got ", shape_string(weights));
  return state == 0 ? 1 : state / head;
}

// The number of heads, of weights in one tensor or in two.
template <class Api, class Tensor>
int64_t check_weights(const char* op, const Arguments<Tensor>& args, const CellSizes& sizes) {
  if (!args.may_have_heads) {
    check_shape(op, "weights", args.weights, "[GS, S + F]", {sizes.gates(), sizes.width()});
    return 1;
  }
  if (!args.input_weights) {
    return check_heads(op, args.weights, "[GS, S / H + F]", sizes.features, sizes.state);
  }
  check_kind<Api>(op, "input_weights", *args.input_weights, args.input);
  check_shape(op, "input_weights", *args.input_weights, "[GS, F]", {sizes.gates(), sizes.features});
  return check_heads(op, args.weights, "[GS, S / H]", 0, sizes.state);
}

template <class Api, class Tensor>
void check_reset(const char* op, const Arguments<Tensor>& args, const SequenceSizes& sizes) {
  if (args.reset) {
    STD_TORCH_CHECK(args.reset->scalar_type() == torch::headeronly::ScalarType::Bool, "lltm::", op,
                    ": reset must be bool, got ", dtype_name(args.reset->scalar_type()));
    STD_TORCH_CHECK(Api::same_device(*args.reset, args.input), "lltm::", op,
                    ": reset must be on the device of input, ", Api::device_name(args.input),
                    ", got ", Api::device_name(*args.reset));
    check_shape(op, "reset", *args.reset, "[T, B]", {sizes.steps, sizes.cell.batch});
  }
  check_optional_states<Api>(op, args.reset_state, args.input, sizes.cell);
}

// What forward and backward take; the scalars are their ops' own.
template <class Api, class Tensor>
SequenceSizes check_arguments(const char* op, const Arguments<Tensor>& args) {
  const Tensor& input = args.input;
  check_defined(op, "input", input);
  if (args.is_step) {
    check_rank(op, "input", input, 2, "[B, F]");
  } else {
    check_rank(op, "input", input, 3, "[T, B, F]");
  }
  check_dtype(op, "input", input);
  check_kind<Api>(op, "weights", args.weights, input);
  check_states_kind<Api>(op, args.states, input);
  const auto& first = args.states.of[0];
  const int64_t rank = args.states.is_stacked ? 3 : 2;
  check_rank(op, first.name, *first.tensor, rank, args.states.is_stacked ? "[N, B, S]" : "[B, S]");
  SequenceSizes sizes{
      args.is_step ? 1 : input.size(0),
      {input.size(input.dim() - 2), input.size(input.dim() - 1), first.tensor->size(rank - 1)}};
  check_sizes(op, sizes);
  check_states_shape(op, args.states, sizes.cell);
  sizes.cell.heads = check_weights<Api>(op, args, sizes.cell);
  check_bias<Api>(op, args.bias, input, sizes.cell.state);
  check_reset<Api>(op, args, sizes);
  return sizes;
}

// What backward takes beside, but needs_input_grad.
template <class Api, class Tensor>
void check_backward(const char* op, const Arguments<Tensor>& args,
                    const BackwardArguments<Tensor>& backward, const SequenceSizes& sizes) {
  const int64_t steps = sizes.steps, batch = sizes.cell.batch, state = sizes.cell.state;
  const auto check = [&](const char* name, const Tensor& tensor, const char* terms,
                         std::initializer_list<int64_t> expected) {
    check_kind<Api>(op, name, tensor, args.input);
    check_shape(op, name, tensor, terms, expected);
  };
  const auto& [states_name, states] = backward.states;
  const auto& [saved_name, saved] = backward.saved;
  if (args.is_step) {
    check(states_name, *states, "[B, S]", {batch, state});
    check(saved_name, *saved, "[B, KS]", {batch, Cell::kSaved * state});
  } else {
    check("output", *backward.output, "[T, B, S]", {steps, batch, state});
    if (args.states.is_stacked) {
      check(states_name, *states, "[T, N - 1, B, S]", {steps, Cell::kStates - 1, batch, state});
    } else {
      check(states_name, *states, "[T, B, S]", {steps, batch, state});
    }
    check(saved_name, *saved, "[T, B, KS]", {steps, batch, Cell::kSaved * state});
  }
  if (backward.grad_output) {
    check("grad_output", *backward.grad_output, "[T, B, S]", {steps, batch, state});
  }
  check_optional_states<Api>(op, backward.grad_last, args.input, sizes.cell);
}

// bool[5] comes as a std::vector or a std::array: Api::Needs.
template <class Needs>
void check_needs(const char* op, const Needs& needs, bool has_bias) {
  STD_TORCH_CHECK(needs.size() == kArguments, "lltm::", op, ": needs_input_grad must have ",
                  static_cast<int>(kArguments), " entries, got ", needs.size());
  STD_TORCH_CHECK(has_bias || !needs[kBias], "lltm::", op,
                  ": needs_input_grad asks for the gradient of bias, which is None");
}

}  // namespace LLTM_CELL
}  // namespace lltm
