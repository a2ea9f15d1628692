// What the LLTM's ops take, which name each state and its scalar: as the arguments of any cell, and
// the checks that only they have.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

#include "checks.h"

namespace lltm {
inline namespace LLTM_CELL {

inline void check_alpha(const char* op, double alpha, torch::headeronly::ScalarType dtype) {
  STD_TORCH_CHECK(std::isfinite(alpha) && alpha >= 0, "lltm::", op,
                  ": alpha must be finite and not negative, got ", alpha);
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  STD_TORCH_CHECK(dtype == torch::headeronly::ScalarType::Double || alpha <= kFloatMax,
                  "lltm::", op, ": alpha must be at most ", kFloatMax,
                  " unless input is float64, got ", alpha);
}

// input [B, F]; h and c [B, S]
template <class Tensor>
Arguments<Tensor> cell_arguments(const Tensor& input, const Tensor& weights,
                                 const std::optional<Tensor>& bias, const Tensor& h,
                                 const Tensor& c) {
  return {input, weights, bias, {false, {{"old_h", &h}, {"old_cell", &c}}}, /*is_step=*/true};
}

// input [T, B, F]; h and c [B, S]
template <class Tensor>
Arguments<Tensor> sequence_arguments(const Tensor& input, const Tensor& weights,
                                     const std::optional<Tensor>& bias, const Tensor& h,
                                     const Tensor& c) {
  return {input, weights, bias, {false, {{"h0", &h}, {"c0", &c}}}};
}

template <class Api, class Tensor>
SequenceSizes check_lltm(const char* op, const Arguments<Tensor>& args, double alpha) {
  const SequenceSizes sizes = check_arguments<Api>(op, args);
  check_alpha(op, alpha, args.input.scalar_type());
  return sizes;
}

// Inference step by step -------------------------------------------------------------------------

// weights [3S, S + F] alone; the batch is 0.
template <class Tensor>
CellSizes check_packable(const char* op, const Tensor& weights) {
  check_defined(op, "weights", weights);
  check_dtype(op, "weights", weights);
  const bool is_matrix = weights.dim() == 2;
  const int64_t state = is_matrix ? weights.size(0) / Cell::kGates : 0;
  STD_TORCH_CHECK(is_matrix && weights.size(0) == Cell::kGates * state && weights.size(1) >= state,
                  "lltm::", op, ": weights must have shape ", with_counts("[GS, S + F]"), ", got ",
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
  check_rank(op, "input", input, 2, "[B, F]");
  check_dtype(op, "input", input);
  check_kind<Api>(op, "old_h", old_h, input);
  check_rank(op, "old_h", old_h, 2, "[B, S]");
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
                  "lltm::stream_step: packed must be what lltm::pack made of weights ",
                  with_counts("[GS, S + F]"), ", ", elements, " elements, got ",
                  packed.is_contiguous() ? "" : "non-contiguous ", shape_string(packed),
                  " of dtype ", dtype_name(packed.scalar_type()));
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

}  // namespace LLTM_CELL
}  // namespace lltm
