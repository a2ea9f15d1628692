// A cell of few rows of bfloat16 by dot products of pairs, which processors with tile instructions
// have, too. Included like simd.h.
#pragma once

// Up to here, on an AMD Zen 4.
constexpr int64_t kMaxDottedRows = 16;

// As FewRows.
template <class Gates>
struct FewDottedRows {
  static constexpr int64_t kBlock = 4;
  const CellForward<BFloat16, BFloat16>& args;

  template <class Lanes>
  void run(int64_t column, Lanes lanes) const {
    for (int64_t row = 0; row < args.gates.rows; row += kBlock) {
      run_block(row, at_most(kBlock, args.gates.rows - row), column, lanes);
    }
  }

  template <class Lanes>
  void run_block(int64_t row, int64_t rows, int64_t column, Lanes lanes) const {
    const DirectProduct<BFloat16>& of = args.product;
    using Results = DotResults<Gates::kGates, kBlock, BFloat16>;
    Results sums = {};
    constexpr const Results* no_share = nullptr;
    for (int64_t gate = 0; gate < Gates::kGates; ++gate) {
      bf16::DotProducts::multiply_along(
          {rows, at_most(bf16::kRows, args.gates.state - column), of.depth,
           of.x + row * of.x_stride, of.x_stride,
           of.weights + (gate * of.gate_rows + column) * of.weights_stride, of.weights_stride,
           sums[0][gate], Gates::kGates * bf16::kRows});
    }
    finish_dots<Gates>(args.gates, row, rows, column, sums, no_share, lanes);
  }
};

template <class Gates>
void cell_few_dotted(const CellForward<BFloat16, BFloat16>& args, int64_t begin, int64_t end) {
  for_each_column_vector<BFloat16>(begin * bf16::kRows,
                                   at_most(end * bf16::kRows, args.gates.state),
                                   FewDottedRows<Gates>{args});
}
