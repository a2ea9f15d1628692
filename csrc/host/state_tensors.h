// The tensors of something that every state has, contiguous: one of all states, or one of each.
#pragma once

#include <optional>

#include "dispatch.h"

namespace lltm {
inline namespace LLTM_CELL {

template <class Api, class Tensor = typename Api::Tensor>
class StateTensors {
 public:
  // The arguments that came.
  explicit StateTensors(const StateArguments<Tensor>& from) : is_stacked_(from.is_stacked) {
    for (int i = 0; i < from.count(); ++i) {
      tensors_[i] = contiguous_or_none<Api>(from.of[i].tensor);
    }
  }

  // Results in the form of `states`: of those for which `wanted` of their position is true.
  template <class Wanted>
  StateTensors(const Tensor& like, const CellSizes& sizes, const StateArguments<Tensor>& states,
               const Wanted& wanted)
      : is_stacked_(states.is_stacked) {
    for (int i = 0; i < states.count(); ++i) {
      tensors_[i] = is_stacked_
                        ? empty_if<Api>(wanted(i), like, {Cell::kStates, sizes.batch, sizes.state})
                        : empty_if<Api>(wanted(i), like, {sizes.batch, sizes.state});
    }
  }

  const std::optional<Tensor>& operator[](int i) const { return tensors_[i]; }

  // [B, S] of each state, or null.
  template <class T>
  void read_into(const T* (&states)[Cell::kStates], int64_t plane) const {
    for (int i = 0; i < Cell::kStates; ++i) {
      const auto& tensor = of(i);
      if (tensor) states[i] = Api::template data<T>(*tensor) + offset(i, plane);
    }
  }
  template <class T>
  void write_into(T* (&states)[Cell::kStates], int64_t plane) const {
    for (int i = 0; i < Cell::kStates; ++i) {
      const auto& tensor = of(i);
      if (tensor) states[i] = Api::template mutable_data<T>(*tensor) + offset(i, plane);
    }
  }

 private:
  bool is_stacked_;
  std::optional<Tensor> tensors_[Cell::kStates];

  const std::optional<Tensor>& of(int i) const { return tensors_[is_stacked_ ? 0 : i]; }
  int64_t offset(int i, int64_t plane) const { return is_stacked_ ? i * plane : 0; }
};

// Every one of the results.
struct AllStates {
  bool operator()(int) const { return true; }
};

}  // namespace LLTM_CELL
}  // namespace lltm
