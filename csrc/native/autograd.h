// Reverse-mode autograd in C++, over the kernels that the dispatcher finds for the device.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>

#include "../contract.h"
#include "composed.h"
#include "namespace.h"

namespace lltm::native {

using at::Tensor;
using std::optional;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Needs = std::array<bool, kArguments>;

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string(LLTM_NAMESPACE_STRING "::") + name).c_str(), "")
      .typed<Signature>();
}

// The kernels of an op, as its autograd needs them.
struct Cell {
  static constexpr int kOutputs = 2;
  static constexpr std::array<int, 2> kSaved = {1, 2};  // new_cell, gates
  using Outputs = std::tuple<Tensor, Tensor>;

  static auto infer(const Tensor& input, const Tensor& weights, const optional<Tensor>& bias,
                    const Tensor& h, const Tensor& c, double alpha) {
    static const auto op = find_op<Outputs(const Tensor&, const Tensor&, const optional<Tensor>&,
                                           const Tensor&, const Tensor&, double)>("cell");
    return op.call(input, weights, bias, h, c, alpha);
  }
  static auto forward(const Tensor& input, const Tensor& weights, const optional<Tensor>& bias,
                      const Tensor& h, const Tensor& c, double alpha) {
    static const auto op = find_op<std::tuple<Tensor, Tensor, Tensor>(
        const Tensor&, const Tensor&, const optional<Tensor>&, const Tensor&, const Tensor&,
        double)>("cell_forward");
    const auto [new_h, new_cell, gates] = op.call(input, weights, bias, h, c, alpha);
    return std::array<Tensor, 3>{new_h, new_cell, gates};
  }
  static Gradients backward(const std::array<optional<Tensor>, 2>& grads, const Tensor& input,
                            const Tensor& weights, const optional<Tensor>& bias, const Tensor& h,
                            const Tensor& c, const std::array<Tensor, 2>& saved, double alpha,
                            const Needs& needs) {
    static const auto op =
        find_op<Gradients(const optional<Tensor>&, const optional<Tensor>&, const Tensor&,
                          const Tensor&, const optional<Tensor>&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&, double, const Needs&)>("cell_backward");
    return op.call(grads[0], grads[1], input, weights, bias, h, c, saved[0], saved[1], alpha,
                   needs);
  }
  static Outputs outputs(const variable_list& list) { return {list[0], list[1]}; }
  static constexpr auto composed = cell_aten;
};

struct Sequence {
  static constexpr int kOutputs = 3;
  static constexpr std::array<int, 3> kSaved = {0, 3, 4};  // output, cells, gates
  using Outputs = std::tuple<Tensor, Tensor, Tensor>;

  static auto infer(const Tensor& input, const Tensor& weights, const optional<Tensor>& bias,
                    const Tensor& h, const Tensor& c, double alpha) {
    static const auto op = find_op<Outputs(const Tensor&, const Tensor&, const optional<Tensor>&,
                                           const Tensor&, const Tensor&, double)>("sequence");
    return op.call(input, weights, bias, h, c, alpha);
  }
  static auto forward(const Tensor& input, const Tensor& weights, const optional<Tensor>& bias,
                      const Tensor& h, const Tensor& c, double alpha) {
    static const auto op = find_op<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
        const Tensor&, const Tensor&, const optional<Tensor>&, const Tensor&, const Tensor&,
        double)>("sequence_forward");
    const auto [output, h_n, c_n, cells, gates] = op.call(input, weights, bias, h, c, alpha);
    return std::array<Tensor, 5>{output, h_n, c_n, cells, gates};
  }
  static Gradients backward(const std::array<optional<Tensor>, 3>& grads, const Tensor& input,
                            const Tensor& weights, const optional<Tensor>& bias, const Tensor& h,
                            const Tensor& c, const std::array<Tensor, 3>& saved, double alpha,
                            const Needs& needs) {
    static const auto op = find_op<Gradients(
        const optional<Tensor>&, const optional<Tensor>&, const optional<Tensor>&, const Tensor&,
        const Tensor&, const optional<Tensor>&, const Tensor&, const Tensor&, const Tensor&,
        const Tensor&, const Tensor&, double, const Needs&)>("sequence_backward");
    return op.call(grads[0], grads[1], grads[2], input, weights, bias, h, c, saved[0], saved[1],
                   saved[2], alpha, needs);
  }
  static Outputs outputs(const variable_list& list) { return {list[0], list[1], list[2]}; }
  static constexpr auto composed = sequence_aten;
};

template <class Op>
struct Function : torch::autograd::Function<Function<Op>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& weights,
                               const optional<Tensor>& bias, const Tensor& h, const Tensor& c,
                               double alpha) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto results = Op::forward(input, weights, bias, h, c, alpha);
    variable_list saved = {input, weights, bias.value_or(Tensor()), h, c};
    for (const int index : Op::kSaved) saved.push_back(results[index]);
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["alpha"] = alpha;
    ctx->set_materialize_grads(false);
    return {results.begin(), results.begin() + Op::kOutputs};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    const auto tensors = ctx->get_saved_variables();
    std::array<optional<Tensor>, Op::kOutputs> grads;
    for (int i = 0; i < Op::kOutputs; ++i) {
      if (grad_outputs[i].defined()) grads[i] = grad_outputs[i];
    }
    std::array<Tensor, Op::kSaved.size()> saved;
    for (size_t i = 0; i < saved.size(); ++i) saved[i] = tensors[kArguments + i];
    const auto& bias = tensors[kBias];
    Needs needs;
    // Absent tensors take no place among the function's edges.
    for (int i = 0, edge = 0; i < kArguments; ++i) {
      const bool present = i != kBias || bias.defined();
      needs[i] = present && ctx->needs_input_grad(edge);
      edge += present;
    }
    auto [d_input, d_weights, d_bias, d_h, d_c] =
        Op::backward(grads, tensors[kInput], tensors[kWeights],
                     bias.defined() ? optional<Tensor>(bias) : std::nullopt, tensors[kOldH],
                     tensors[kOldCell], saved, ctx->saved_data["alpha"].toDouble(), needs);
    variable_list gradients = {d_input, d_weights, d_bias, d_h, d_c, Tensor()};
    for (int i = 0; i < kArguments; ++i) {
      if (!needs[i]) gradients[i] = Tensor();
    }
    return gradients;
  }
};

inline bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Any transform of torch.func keeps this key included while it runs.
inline bool is_transformed() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

template <class Op>
typename Op::Outputs autograd(const Tensor& input, const Tensor& weights,
                              const optional<Tensor>& bias, const Tensor& h, const Tensor& c,
                              double alpha) {
  const bool reverse = at::GradMode::is_enabled() &&
                       (input.requires_grad() || weights.requires_grad() ||
                        (bias && bias->requires_grad()) || h.requires_grad() || c.requires_grad());
  const bool forward = has_tangent(input) || has_tangent(weights) || (bias && has_tangent(*bias)) ||
                       has_tangent(h) || has_tangent(c);
  // torch::autograd::Function knows neither forward mode nor the transforms of torch.func; the
  // composed op is made of operations that do.
  if (forward || (reverse && is_transformed())) {
    return Op::composed(input, weights, bias, h, c, alpha);
  }
  if (reverse) return Op::outputs(Function<Op>::apply(input, weights, bias, h, c, alpha));
  at::AutoDispatchBelowADInplaceOrView below;
  return Op::infer(input, weights, bias, h, c, alpha);
}

}  // namespace lltm::native
