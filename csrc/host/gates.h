// The gate kernels over threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../cpu/kernels.h"

namespace lltm {

// Below this many elements a second thread costs more than it saves.
constexpr int64_t kGrainElements = 16384;

template <class Api, class T>
void gates_forward(const cpu::GatesForward<T>& args) {
  const auto kernel = cpu::kernels().of<T>().gates_forward;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::min(args.state, cpu::kColumns));
  Api::parallel_for(cpu::gate_items(args.rows, args.state), grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <class Api, class T>
void gates_backward(const cpu::GatesBackward<T>& args) {
  const auto kernel = cpu::kernels().of<T>().gates_backward;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::min(args.state, cpu::kColumns));
  Api::parallel_for(cpu::gate_items(args.rows, args.state), grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <class Api, class T>
void column_sum(const cpu::ColumnSum<T>& args) {
  const auto kernel = cpu::kernels().of<T>().column_sum;
  const int64_t grain = std::max<int64_t>(64, kGrainElements / std::max<int64_t>(1, args.rows));
  Api::parallel_for(args.columns, grain,
                    [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace lltm
