// bfloat16 products in whole tiles, by an Engine of bf16_tiles.h. Included like simd.h, with
// AVX-512 only.
//
// Operands are copied into whole tiles, padded with zeros, unless they are such tiles already: no
// row is multiplied by what lies beyond it, whatever stands there.
#pragma once

using TilePairs = VFloat[bf16::kRows];  // rows of 16 pairs of bfloat16

// How far ahead a row is asked for, in elements: the rows of weights are in a page each, which the
// processor fetches no sooner than they are read.
constexpr int64_t kFetchedAhead = 2 * bf16::kDepth;

// pairs[lane][k]: for lanes whose elements of the depth lie side by side.
LLTM_INLINE void load_whole_along(const BFloat16* from, int64_t lane_stride, TilePairs& pairs) {
#pragma GCC unroll 16
  for (int64_t lane = 0; lane < bf16::kRows; ++lane, from += lane_stride) {
    __builtin_prefetch(from + kFetchedAhead, 0, 2);
    pairs[lane] = load_bytes<VFloat>(from);
  }
}

// The same where there are fewer, beside zeros.
LLTM_INLINE void load_along(const BFloat16* from, int64_t lane_stride, int64_t lanes, int64_t depth,
                            TilePairs& pairs) {
  for (int64_t lane = 0; lane < bf16::kRows; ++lane) {
    BFloat16 line[bf16::kDepth] = {};
    const BFloat16* at = from + lane * lane_stride;
    if (lane < lanes && depth >= bf16::kDepth) {
      __builtin_memcpy(line, at, sizeof line);
    } else if (lane < lanes) {
      __builtin_memcpy(line, at, depth * sizeof(BFloat16));
    }
    pairs[lane] = load_bytes<VFloat>(line);
  }
}

LLTM_INLINE VUnsigned load_lanes(const BFloat16* from) {
  return __builtin_convertvector(load_bytes<VShort>(from), VUnsigned);
}

// pairs[k][lane]: for elements of the depth whose lanes lie side by side.
LLTM_INLINE void load_whole_across(const BFloat16* from, int64_t depth_stride, TilePairs& pairs) {
#pragma GCC unroll 16
  for (int64_t pair = 0; pair < bf16::kRows; ++pair, from += 2 * depth_stride) {
    pairs[pair] = bit_cast<VFloat>(load_lanes(from) | (load_lanes(from + depth_stride) << 16));
  }
}

// The same where there are fewer, beside zeros.
LLTM_INLINE void load_across(const BFloat16* from, int64_t depth_stride, int64_t lanes,
                             int64_t depth, TilePairs& pairs) {
  for (int64_t pair = 0; pair < bf16::kRows; ++pair) {
    VUnsigned halves[2];
    for (int64_t i = 0; i < 2; ++i) {
      BFloat16 line[bf16::kRows] = {};
      const BFloat16* at = from + (2 * pair + i) * depth_stride;
      if (2 * pair + i < depth && lanes >= bf16::kRows) {
        __builtin_memcpy(line, at, sizeof line);
      } else if (2 * pair + i < depth) {
        __builtin_memcpy(line, at, lanes * sizeof(BFloat16));
      }
      halves[i] = load_lanes(line);
    }
    pairs[pair] = bit_cast<VFloat>(halves[0] | (halves[1] << 16));
  }
}

// One tile of an operand whose lanes are rows of a, or columns of b.
struct TileSource {
  const BFloat16* from;
  int64_t lane_stride;
  int64_t depth_stride;  // one of the strides is 1
  int64_t lanes;         // there are
  int64_t depth;         // there is

  // The tile that begins so many lanes and elements of the depth further on.
  TileSource at(int64_t lane, int64_t k) const {
    return {from + lane * lane_stride + k * depth_stride, lane_stride, depth_stride, lanes - lane,
            depth - k};
  }
};

enum class TileOf { kRows, kColumns };

// As a row of lanes for a, as rows of pairs for b.
template <TileOf kOf>
__attribute__((noinline)) void pack_tile(const TileSource& of, BFloat16* to) {
  TilePairs pairs;
  const bool along = of.depth_stride == 1;
  const bool whole = of.lanes >= bf16::kRows && of.depth >= bf16::kDepth;
  if (whole && along) {
    load_whole_along(of.from, of.lane_stride, pairs);
  } else if (whole) {
    load_whole_across(of.from, of.depth_stride, pairs);
  } else if (along) {
    load_along(of.from, of.lane_stride, of.lanes, of.depth, pairs);
  } else {
    load_across(of.from, of.depth_stride, of.lanes, of.depth, pairs);
  }
  if (along != (kOf == TileOf::kRows)) transpose_vectors<float>(pairs);
  for (int64_t i = 0; i < bf16::kRows; ++i) {
    __builtin_memcpy(to + i * bf16::kDepth, &pairs[i], sizeof pairs[i]);
  }
}

constexpr int64_t tiles_of(int64_t count, int64_t side) { return (count + side - 1) / side; }

// Products of any size --------------------------------------------------------------------------

constexpr int64_t kTiledBlock = 256;

// packed[lane tile][depth tile]
template <TileOf kOf>
void pack_tiles(const TileSource& of, int64_t lanes, int64_t depth, BFloat16* packed) {
  for (int64_t lane = 0; lane < lanes; lane += bf16::kRows) {
    for (int64_t k = 0; k < depth; k += bf16::kDepth, packed += bf16::kElements) {
      pack_tile<kOf>(of.at(lane, k), packed);
    }
  }
}

// What is multiplied row by row: in tiles, or where it is.
struct TiledRows {
  const BFloat16* data;
  int64_t row_stride;
  int64_t tile;   // between tiles below each other
  int64_t depth;  // between tiles beside each other

  // Those from a whole tile on.
  TiledRows from(int64_t row) const {
    return {data + row / bf16::kRows * tile, row_stride, tile, depth};
  }
};

template <class Engine>
TiledRows tiled_rows(const TileSource& of, BFloat16* room) {
  const bool whole = of.depth_stride == 1 && of.depth % bf16::kDepth == 0;
  if (Engine::kRowsInPlace && whole) {
    return {of.from, of.lane_stride, bf16::kRows * of.lane_stride, bf16::kDepth};
  }
  pack_tiles<TileOf::kRows>(of, of.lanes, of.depth, room);
  return {room, bf16::kDepth, tiles_of(of.depth, bf16::kDepth) * bf16::kElements, bf16::kElements};
}

// A block of c. Its sums are transposed where the rows of b's transpose are read where they are and
// are more than those of a: a batch against the weights of a single step.
template <class Engine>
struct TiledBlock {
  const MixedProduct<BFloat16>& args;
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
  bool transposed;

  TiledBlock(const MixedProduct<BFloat16>& of, int64_t first_row, int64_t first_column)
      : args(of),
        row(first_row),
        rows(at_most(of.row_block, of.rows - row)),
        column(first_column),
        columns(at_most(of.column_block, of.columns - column)),
        transposed(is_transposed(of)) {}

  static bool is_transposed(const MixedProduct<BFloat16>& of) {
    return Engine::kRowsInPlace && of.b_row_stride == 1 && of.rows < of.columns;
  }

  TileSource of_a(int64_t k, int64_t depth) const {
    return {args.a + row * args.a_row_stride + k * args.a_column_stride, args.a_row_stride,
            args.a_column_stride, rows, depth};
  }
  TileSource of_b(int64_t k, int64_t depth) const {
    return {args.b + k * args.b_row_stride + column * args.b_column_stride, args.b_column_stride,
            args.b_row_stride, columns, depth};
  }

  // What blocks pack of their columns. Transposed ones beside each other have the same, which stays
  // for the next: it is a twentieth of the work.
  static Scratch<BFloat16> columns_room(const MixedProduct<BFloat16>& of) {
    const int64_t blocks = is_transposed(of) ? tiles_of(of.depth, Engine::kDepthBlock) : 1;
    return Scratch<BFloat16>(blocks * Engine::kDepthBlock * kTiledBlock);
  }

  void run(BFloat16* packed, bool is_packed) const {
    constexpr int64_t depth_block = Engine::kDepthBlock;
    const Scratch<float> sums(kTiledBlock * kTiledBlock);
    const Scratch<BFloat16> a(kTiledBlock * depth_block);
    const int64_t lanes = transposed ? columns : rows;
    // Sums that are whole after one block of the depth are written while a cache still has them.
    const int64_t strip = args.depth <= depth_block ? bf16::kMaxRows : lanes;
    // At least once: a product of depth 0 is all zeros.
    for (int64_t k = 0; k == 0 || k < args.depth; k += depth_block) {
      const int64_t depth = at_most(depth_block, args.depth - k);
      const TileSource row_side = transposed ? of_b(k, depth) : of_a(k, depth);
      const TileSource column_side = transposed ? of_a(k, depth) : of_b(k, depth);
      BFloat16* b = packed + (transposed ? k * kTiledBlock : 0);
      if (!is_packed) pack_tiles<TileOf::kColumns>(column_side, column_side.lanes, depth, b);
      const TiledRows tiles = tiled_rows<Engine>(row_side, a.data());
      for (int64_t first = 0; first < lanes; first += strip) {
        const int64_t count = at_most(strip, lanes - first);
        multiply(tiles.from(first), count, b, column_side.lanes, depth, sums.data(), k > 0);
        if (k + depth_block >= args.depth) write(first, count, sums.data());
      }
    }
  }

  static void multiply(const TiledRows& a, int64_t row_lanes, const BFloat16* b,
                       int64_t column_lanes, int64_t depth, float* sums, bool add) {
    const int64_t tiles = tiles_of(depth, bf16::kDepth), lane_tile = tiles * bf16::kElements;
    const int64_t last_pairs = tiles_of(depth - (tiles - 1) * bf16::kDepth, 2);
    // In parts of nearly the same number of tiles.
    const int64_t columns = tiles_of(column_lanes, bf16::kRows);
    const int64_t parts = tiles_of(columns, bf16::kColumnTiles);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t j = columns * part / parts, count = columns * (part + 1) / parts - j;
      for (int64_t i = 0; i < row_lanes; i += bf16::kMaxRows) {
        Engine::multiply({at_most(bf16::kMaxRows, row_lanes - i), static_cast<int>(count),
                          a.from(i).data, a.row_stride, a.tile, a.depth, b + j * lane_tile,
                          lane_tile, bf16::kElements, tiles, last_pairs,
                          sums + i * kTiledBlock + j * bf16::kRows, kTiledBlock, add,
                          part == 0 && a.depth == bf16::kDepth});
      }
    }
  }

  // The sums of `count` lanes from `first` on.
  void write(int64_t first, int64_t count, const float* sums) const {
    if (!transposed) {
      for (int64_t i = 0; i < count; ++i) write_row(first + i, 0, columns, sums + i * kTiledBlock);
      return;
    }
    constexpr int64_t strip = 16;  // rows of c
    alignas(kVectorBytes) float lines[strip * kTiledBlock];
    for (int64_t i = 0; i < rows; i += strip) {
      const int64_t lines_of_c = at_most(strip, rows - i);
      transpose_into(sums + i, kTiledBlock, count, lines_of_c, lines, kTiledBlock, count);
      for (int64_t line = 0; line < lines_of_c; ++line) {
        write_row(i + line, first, count, lines + line * kTiledBlock);
      }
    }
  }

  void write_row(int64_t i, int64_t first, int64_t count, const float* sums) const {
    const int64_t at = (row + i) * args.c_row_stride + column + first;
    if (args.c) bf16::DotProducts::narrow(sums, args.c + at, count);
    if (args.wide_c) __builtin_memcpy(args.wide_c + at, sums, count * sizeof(float));
  }
};

template <class Engine>
void tiled_product(const MixedProduct<BFloat16>& args, int64_t begin, int64_t end) {
  if (has_few_rows(args)) return few_rows_product(args, begin, end);
  if (has_few_terms(args)) return few_terms_product(args, begin, end);
  const Scratch<BFloat16> packed = TiledBlock<Engine>::columns_room(args);
  int64_t packed_row = -1;
  Engine::begin();
  for (int64_t item = begin; item < end; ++item) {
    const TiledBlock<Engine> block(args, item / args.column_blocks() * args.row_block,
                                   item % args.column_blocks() * args.column_block);
    block.run(packed.data(), block.transposed && block.row == packed_row);
    packed_row = block.row;
  }
  Engine::end();
}

// Steps of a sequence -----------------------------------------------------------------------------

// packed[panel][depth tile][gate], a panel of one tile of states
template <class Gates>
void pack_tiled_forward(const TilePack& args, int64_t begin, int64_t end) {
  const int64_t tiles = tiles_of(args.columns, bf16::kDepth);
  for (int64_t panel = begin; panel < end; ++panel) {
    BFloat16* to = args.packed + panel * tiles * Gates::kGates * bf16::kElements;
    for (int64_t k = 0; k < args.columns; k += bf16::kDepth) {
      for (int64_t gate = 0; gate < Gates::kGates; ++gate, to += bf16::kElements) {
        const TileSource of{args.weights + gate * args.state * args.row_stride, args.row_stride, 1,
                            args.state, args.columns};
        pack_tile<TileOf::kColumns>(of.at(panel * bf16::kRows, k), to);
      }
    }
  }
}

template <class Engine, class Gates>
void tiled_forward(const TiledForward& args, int64_t begin, int64_t end) {
  constexpr int64_t gates = Gates::kGates, block = bf16::kMaxRows;
  // In parts of nearly the same number of tiles.
  constexpr int64_t parts = (gates + bf16::kColumnTiles - 1) / bf16::kColumnTiles;
  const int64_t tiles = args.h_stride / bf16::kDepth;
  alignas(64) float sums[block * gates * bf16::kRows];
  Engine::begin();
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t column = panel * bf16::kRows;
    for (int64_t row = 0; row < args.gates.rows; row += block) {
      const int64_t rows = at_most(block, args.gates.rows - row);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t gate = gates * part / parts, count = gates * (part + 1) / parts - gate;
        Engine::multiply({rows, static_cast<int>(count), args.h + row * args.h_stride,
                          args.h_stride, bf16::kRows * args.h_stride, bf16::kDepth,
                          args.packed + (panel * tiles * gates + gate) * bf16::kElements,
                          bf16::kElements, gates * bf16::kElements, tiles, bf16::kRows,
                          sums + gate * bf16::kRows, gates * bf16::kRows, false});
      }
      const GateSums<float> of{sums, nullptr, gates * bf16::kRows, bf16::kRows};
      with_lanes<BFloat16>(args.gates.state - column, [&](auto lanes) {
        finish_forward<Gates>(args.gates, row, rows, column, of, lanes);
      });
    }
  }
  Engine::end();
}

// packed[panel][depth tile][2], a panel of two tiles of states
template <class Gates>
void pack_tiled_backward(const TilePack& args, int64_t begin, int64_t end) {
  const int64_t depth = Gates::kGates * args.state, tiles = tiles_of(depth, bf16::kDepth);
  const TileSource of{args.weights, 1, args.row_stride, args.columns, depth};
  for (int64_t panel = begin; panel < end; ++panel) {
    BFloat16* to = args.packed + panel * tiles * 2 * bf16::kElements;
    for (int64_t k = 0; k < depth; k += bf16::kDepth) {
      for (int64_t half = 0; half < 2; ++half, to += bf16::kElements) {
        const int64_t lane = (2 * panel + half) * bf16::kRows;
        pack_tile<TileOf::kColumns>(of.at(at_most(lane, args.columns), k), to);
      }
    }
  }
}

template <class Gates>
void finish_tiled_backward(const TiledBackward& args, int64_t row, int64_t rows, int64_t column,
                           const float* sums) {
  for (int64_t at = 0; at < 2 * bf16::kRows && column + at < args.gates.state; at += bf16::kRows) {
    with_lanes<BFloat16>(args.gates.state - column - at, [&](auto lanes) {
      finish_backward<Gates>(args.gates, row, rows, column + at,
                             GradientSums<float>{sums + at, 2 * bf16::kRows}, lanes);
    });
  }
}

template <class Engine, class Gates>
void tiled_backward(const TiledBackward& args, int64_t begin, int64_t end) {
  constexpr int64_t block = bf16::kMaxRows;
  const int64_t tiles = args.d_z_stride / bf16::kDepth;
  alignas(64) float sums[block * block];
  Engine::begin();
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t row = 0; row < args.gates.rows; row += block) {
      const int64_t rows = at_most(block, args.gates.rows - row);
      BackwardFetches<Gates, 2, BFloat16> fetches(args.gates, row, rows, panel * block);
      const int64_t parts = fetches.parts(tiles_of(args.d_z_stride, Engine::kPartDepth));
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t k = tiles * part / parts, end = tiles * (part + 1) / parts;
        fetches.ask(part, parts);
        Engine::multiply({rows, 2, args.d_z_after + row * args.d_z_stride + k * bf16::kDepth,
                          args.d_z_stride, bf16::kRows * args.d_z_stride, bf16::kDepth,
                          args.packed + (panel * tiles + k) * 2 * bf16::kElements, bf16::kElements,
                          2 * bf16::kElements, end - k, bf16::kRows, sums, block, part > 0});
      }
      finish_tiled_backward<Gates>(args, row, rows, panel * block, sums);
    }
  }
  Engine::end();
}
