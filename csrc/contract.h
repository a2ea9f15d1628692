// What every op takes and returns, shared by both bindings; checks.h holds them to it.
//
// B batch, T time, F input features, S state size; of the cell: N states, G gates, P
// pre-activations and K saved values of an element, H heads. Host functions are templates over an
// Api, the little of torch that they need, which each binding provides (stable/api.h,
// native/api.h).
#pragma once

#include <cstdint>
#include <optional>

#include "cell.h"

namespace lltm {
inline namespace LLTM_CELL {

// Schemas of the LLTM's ops, which name each state and its scalar. The order of `weights`' rows is
// input gate, output gate, candidate cell; its first S columns multiply the hidden state, the next
// F the input. `bias` is [3S], [1, 3S] or absent.
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

// Schemas of the ops of any cell.
//
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

// Name of the CPU kernels' instruction set in use.
constexpr const char* kCpuCapabilitySchema = "cpu_capability() -> str";

// Positions in needs_input_grad.
enum Argument { kInput, kWeights, kBias, kOldH, kOldCell, kArguments };
// ... of the ops of any cell, which have the first three, too.
enum AnyArgument { kStates = kOldH, kResetState };

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

// Arguments --------------------------------------------------------------------------------------

template <class Tensor>
struct Named {
  const char* name = nullptr;
  const Tensor* tensor = nullptr;  // null where absent
};

// Something that every state has, as an op takes it: one tensor [N, B, S] of all states, or a
// tensor [B, S] of each.
template <class Tensor>
struct StateArguments {
  bool is_stacked = true;
  Named<Tensor> of[Cell::kStates] = {};

  int count() const { return is_stacked ? 1 : Cell::kStates; }
};

template <class Tensor>
const Tensor* pointer_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? &*tensor : nullptr;
}

// What forward takes, and backward as well.
template <class Tensor>
struct Arguments {
  const Tensor& input;  // [T, B, F], or [B, F] of one step
  const Tensor& weights;
  const std::optional<Tensor>& bias;
  StateArguments<Tensor> states;
  bool is_step = false;
  // What only the ops of any cell have.
  bool may_have_heads = false;
  const Tensor* input_weights = nullptr;
  const Tensor* reset = nullptr;
  StateArguments<Tensor> reset_state = {};
};

// What backward takes beside.
template <class Tensor>
struct BackwardArguments {
  const Tensor* grad_output = nullptr;  // [T, B, S] or null
  StateArguments<Tensor> grad_last;
  const Tensor* output = nullptr;  // [T, B, S]; null of one step
  Named<Tensor> states;            // all but h: [T, N - 1, B, S], or [T, B, S] of a single one
  Named<Tensor> saved;             // [T, B, KS]
};

}  // namespace LLTM_CELL
}  // namespace lltm
