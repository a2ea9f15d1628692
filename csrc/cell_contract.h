// What the ops of any cell take and return, and the checks on it: the LLTM's are in contract.h.
//
// Letters as there; N states, G gates, P pre-activations of an element, H heads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contract.h"

namespace lltm {
inline namespace LLTM_CELL {

// input [T, B, F]; weights [GS, S / H + F], whose first S / H columns multiply the hidden state:
// the rows of head k only that head's; bias [PS] or [1, PS]; states [N, B, S], the hidden state
// first; reset bool [T, B]: where true, the row's states are those of reset_state [N, B, S], or
// zeros, before that step.
#define LLTM_ANY_ARGUMENTS                                                       \
  "Tensor input, Tensor weights, Tensor? bias, Tensor states, float[] scalars, " \
  "Tensor? reset=None, Tensor? reset_state=None"
// With input_weights [GS, F], weights are [GS, S / H]: what torch's modules have in two parameters.
// -> output [T, B, S], last [N, B, S]
constexpr const char* kAnySequenceSchema =
    "sequence(" LLTM_ANY_ARGUMENTS ", Tensor? input_weights=None) -> (Tensor output, Tensor last)";
// ... and states_all [T, N - 1, B, S] without the hidden state, saved [T, B, kSaved S] for backward
constexpr const char* kAnySequenceForwardSchema = "sequence_forward(" LLTM_ANY_ARGUMENTS
                                                  ") -> (Tensor output, Tensor last, Tensor "
                                                  "states_all, Tensor saved)";
constexpr const char* kAnySequenceBackwardSchema =
    "sequence_backward(Tensor? grad_output, Tensor? grad_last, Tensor input, Tensor weights, "
    "Tensor? bias, Tensor states, float[] scalars, Tensor? reset, Tensor? reset_state, "
    "Tensor output, Tensor states_all, Tensor saved, bool[5] needs_input_grad) -> "
    "(Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_states, Tensor d_reset_state)";

// Positions in needs_input_grad; the first three are those of the LLTM.
enum AnyArgument { kStates = kOldH, kResetState };

// "4S" for a cell of four gates.
inline std::string of_state(int count) { return std::to_string(count) + "S"; }

// What every op of any cell takes.
template <class Tensor>
struct AnyArguments {
  const Tensor& input;
  const Tensor& weights;
  const std::optional<Tensor>& bias;
  const Tensor& states;
  const std::vector<double>& scalars;
  const std::optional<Tensor>& reset;
  const std::optional<Tensor>& reset_state;
  const std::optional<Tensor>& input_weights;
};

// How many heads the columns of weights leave, `features` of which are the input's.
template <class Tensor>
int64_t check_heads(const char* op, const Tensor& weights, const std::string& columns,
                    int64_t features, int64_t state) {
  const std::string terms = "[" + of_state(Cell::kGates) + ", " + columns + "]";
  STD_TORCH_CHECK(weights.dim() == 2 && weights.size(0) == Cell::kGates * state, "lltm::", op,
                  ": weights must have shape ", terms, " with S = ", state, ", got ",
                  shape_string(weights));
  const int64_t head = weights.size(1) - features;
  const bool divides = state == 0 ? head == 0 : head > 0 && state % head == 0;
  STD_TORCH_CHECK(divides, "lltm::", op, ": weights must have shape ", terms,
                  " with H heads, of which S = ", state, " is a multiple, and F = ", features,
                  ", got ", shape_string(weights));
  return state == 0 ? 1 : state / head;
}

// As check_heads, of weights that may be in two tensors.
template <class Api, class Tensor>
int64_t check_any_weights(const char* op, const AnyArguments<Tensor>& args,
                          const CellSizes& sizes) {
  if (!args.input_weights) {
    return check_heads(op, args.weights, "S / H + F", sizes.features, sizes.state);
  }
  check_kind<Api>(op, "input_weights", *args.input_weights, args.input);
  check_shape(op, "input_weights", *args.input_weights,
              ("[" + of_state(Cell::kGates) + ", F]").c_str(),
              {Cell::kGates * sizes.state, sizes.features});
  return check_heads(op, args.weights, "S / H", 0, sizes.state);
}

template <class Api, class Tensor>
void check_any_bias(const char* op, const std::optional<Tensor>& bias, const Tensor& input,
                    int64_t state) {
  if (!bias) return;
  check_kind<Api>(op, "bias", *bias, input);
  const int64_t elements = Cell::kPre * state;
  const std::string size = of_state(Cell::kPre), terms = "[" + size + "] or [1, " + size + "]";
  if (bias->dim() == 1) {
    check_shape(op, "bias", *bias, terms.c_str(), {elements});
  } else {
    check_shape(op, "bias", *bias, terms.c_str(), {1, elements});
  }
}

template <class Api, class Tensor>
void check_reset(const char* op, const AnyArguments<Tensor>& args, const SequenceSizes& sizes) {
  if (args.reset) {
    STD_TORCH_CHECK(args.reset->scalar_type() == torch::headeronly::ScalarType::Bool, "lltm::", op,
                    ": reset must be bool, got ", dtype_name(args.reset->scalar_type()));
    STD_TORCH_CHECK(Api::same_device(*args.reset, args.input), "lltm::", op,
                    ": reset must be on the device of input, ", Api::device_name(args.input),
                    ", got ", Api::device_name(*args.reset));
    check_shape(op, "reset", *args.reset, "[T, B]", {sizes.steps, sizes.cell.batch});
  }
  if (args.reset_state) {
    check_kind<Api>(op, "reset_state", *args.reset_state, args.input);
    check_shape(op, "reset_state", *args.reset_state, "[N, B, S]",
                {Cell::kStates, sizes.cell.batch, sizes.cell.state});
  }
}

template <class Api, class Tensor>
SequenceSizes check_any_sequence(const char* op, const AnyArguments<Tensor>& args) {
  check_defined(op, "input", args.input);
  STD_TORCH_CHECK(args.input.dim() == 3, "lltm::", op,
                  ": input must have 3 dimensions [T, B, F], got ", shape_string(args.input));
  check_dtype(op, "input", args.input);
  check_kind<Api>(op, "weights", args.weights, args.input);
  check_kind<Api>(op, "states", args.states, args.input);
  STD_TORCH_CHECK(args.states.dim() == 3, "lltm::", op,
                  ": states must have 3 dimensions [N, B, S], got ", shape_string(args.states));
  SequenceSizes sizes{args.input.size(0),
                      {args.input.size(1), args.input.size(2), args.states.size(2)}};
  check_sizes(op, sizes);
  check_shape(op, "states", args.states, "[N, B, S]",
              {Cell::kStates, sizes.cell.batch, sizes.cell.state});
  sizes.cell.heads = check_any_weights<Api>(op, args, sizes.cell);
  check_any_bias<Api>(op, args.bias, args.input, sizes.cell.state);
  STD_TORCH_CHECK(args.scalars.size() == static_cast<size_t>(Cell::kScalars), "lltm::", op,
                  ": scalars must have ", Cell::kScalars, " numbers, got ", args.scalars.size());
  check_reset<Api>(op, args, sizes);
  return sizes;
}

}  // namespace LLTM_CELL
}  // namespace lltm
