// A general product, blocked for the caches: both operands packed a block at a time, the rest is
// the register tile. Included like simd.h.
#pragma once

// to[k][lane] = from(k, lane) for the lanes there are, of Room, else zero.
template <int64_t Room, class T>
void pack_panel(const T* from, int64_t row_stride, int64_t column_stride, int64_t depth,
                int64_t lanes, T* to) {
  if (column_stride == 1 && lanes == Room) {
    for (int64_t k = 0; k < depth; ++k) {
      __builtin_memcpy(to + k * Room, from + k * row_stride, Room * sizeof(T));
    }
    return;
  }
  if (row_stride == 1) {
    transpose_into(from, column_stride, lanes, depth, to, Room, Room);
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t lane = 0; lane < Room; ++lane) {
      to[k * Room + lane] = lane < lanes ? from[k * row_stride + lane * column_stride] : T(0);
    }
  }
}

// Whether the next panel of b is asked for while a panel is multiplied. Its rows are in a page
// each, so that nothing else asks for them early. With AVX-512, whose panels are twice as wide, an
// Intel Cascade Lake lost 1 to 4 % by it.
constexpr bool kFetchesNextPanel = kVectorBytes < 64;

// Terms at a time where a is transposed and packed, too. With AVX-512 a panel of b, which is twice
// as wide, then stays in a first-level cache of 32 KiB, and twice as many rows read it.
constexpr int64_t kTransposedDepth = kVectorBytes == 64 ? kDepthBlock / 2 : kDepthBlock;

// Rows of a transposed a at a time: as many as a thread's stack has room for, since b is packed
// again for each such block.
constexpr int64_t kPackedBytes = 1 << 18;
template <class T>
constexpr int64_t kTransposedRows = kPackedBytes / (kTransposedDepth * sizeof(T));

// A result that is written once goes around the caches from this size on, so that the lines it is
// written over are not read before. Of less a reader that follows at once waits for memory: on an
// Intel Cascade Lake the two together lost up to a fifth at 1 to 4 MiB, and won a sixth at 24.
constexpr int64_t kStreamedBytes = 8 << 20;

// Panels of b that are packed at a time where its rows are contiguous. What is read of a row, which
// is in a page of its own, then is as long as an Intel Cascade Lake fetches by itself: a product of
// 64 rows with weights beyond its second-level cache takes 0.84 of the time. AVX2 was measured with
// one, and the next one's rows asked for.
constexpr int64_t kPackedPanels = kVectorBytes == 64 ? 4 : 1;
template <class T>
constexpr int64_t kPanelWidth = kProductVectors * kWidth<T>;

// Terms that are packed at a time, so that each line and page is read while it is at hand.
constexpr int64_t kStrip = 16;

// What becomes of a tile's sums.
enum class Write { kSet, kAdd, kStream };

// Some panels of columns against one block of rows, for one block of the depth.
template <class T>
struct Block {
  const MatrixProduct<T>& args;
  int64_t row, rows;        // of c
  int64_t depth_at, depth;  // of the product
  const T* packed_a;        // [tile][depth][kTileRows], or null: a is read where it is
  Write how;
  T* packed_b;  // room for [panel][depth][kPanelWidth]

  // The panels [first, last), of which one alone is packed in one piece.
  void run(int64_t first, int64_t last) const {
    const int64_t strip = last - first > 1 ? kStrip : depth;
    for (int64_t k = 0; k < depth; k += strip) {
      const int64_t terms = at_most(strip, depth - k);
      for (int64_t p = first; p < last; ++p) {
        with_panel(p, [&](auto vectors, int64_t column) {
          pack<vectors>(column, k, terms, packed(p - first));
        });
      }
    }
    for (int64_t p = first; p < last; ++p) {
      with_panel(
          p, [&](auto vectors, int64_t column) { multiply<vectors>(column, packed(p - first)); });
    }
  }

  T* packed(int64_t panel) const { return packed_b + panel * depth * kPanelWidth<T>; }

  // Calls `body` with the vectors of a panel, as a constant, and its first column.
  template <class Body>
  void with_panel(int64_t panel, const Body& body) const {
    const UnevenPanels panels(args.columns, kWidth<T>);
    const int64_t column = panels.first(panel) * kWidth<T>;
    switch (panels.size(panel)) {
      case 3:
        return body(std::integral_constant<int, 3>(), column);
      case 2:
        return body(std::integral_constant<int, 2>(), column);
      default:
        return body(std::integral_constant<int, 1>(), column);
    }
  }

  // The terms from k on, to [depth][Vectors * width].
  template <int Vectors>
  void pack(int64_t column, int64_t k, int64_t terms, T* to) const {
    constexpr int64_t panel = Vectors * kWidth<T>;
    const T* b = args.b + (depth_at + k) * args.b_row_stride + column * args.b_column_stride;
    pack_panel<panel>(b, args.b_row_stride, args.b_column_stride, terms,
                      at_most(panel, args.columns - column), to + k * panel);
  }

  template <int Vectors>
  void multiply(int64_t column, const T* panel_of_b) const {
    constexpr int64_t panel = Vectors * kWidth<T>;
    const int64_t columns = at_most(panel, args.columns - column);
    const T* b = args.b + depth_at * args.b_row_stride + column * args.b_column_stride;
    const bool fetches = kFetchesNextPanel && args.b_column_stride == 1;
    const int64_t fetched = fetches && column + panel < args.columns ? depth : 0;
    TileSums<T, Vectors> sums;
    TileOperands<T> operands{nullptr, 1, kTileRows, panel_of_b, panel, depth, args.sum_block};
    if (!packed_a) operands.a_row_stride = args.a_row_stride;
    if (!packed_a) operands.a_column_stride = args.a_column_stride;
    for (int64_t i = 0, count, k = 0; i < rows; i += count) {
      count = packed_a ? at_most(kTileRows, rows - i) : next_rows<Vectors>(rows - i);
      T* to = args.c + (row + i) * args.c_row_stride + column;
      operands.a = packed_a
                       ? packed_a + i * depth
                       : args.a + (row + i) * args.a_row_stride + depth_at * args.a_column_stride;
      // While the tile is multiplied: the lines of c, and those of its share of the next panel.
      if (how != Write::kStream) {
        for (int64_t j = 0; j < count; ++j) fetch<panel>(to + j * args.c_row_stride);
      }
      for (const int64_t end = (i + count) * fetched / rows; k < end; ++k) {
        fetch<panel>(b + k * args.b_row_stride + panel);
      }
      tile_of<T, Vectors>(count)(operands, &sums.at[0][0][0], false);
      switch (how) {
        case Write::kSet:
          write<Write::kSet>(sums, to, count, columns);
          break;
        case Write::kAdd:
          write<Write::kAdd>(sums, to, count, columns);
          break;
        case Write::kStream:
          if constexpr (kStreams) write<Write::kStream>(sums, to, count, columns);
      }
    }
  }

  // The sums into c, or onto it.
  template <Write kHow, int Vectors>
  LLTM_INLINE void write(const TileSums<T, Vectors>& sums, T* c, int64_t count,
                         int64_t columns) const {
    constexpr int64_t width = kWidth<T>;
    if (columns == Vectors * width) {
      for (int64_t i = 0; i < count; ++i, c += args.c_row_stride) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) write_vector<kHow>(sums.at[i][v], c + v * width, Full{});
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i, c += args.c_row_stride) {
      int64_t v = 0;
      for (; (v + 1) * width <= columns; ++v) {
        write_vector<kHow>(sums.at[i][v], c + v * width, Full{});
      }
      if (const int64_t rest = columns - v * width) {
        write_vector<kHow>(sums.at[i][v], c + v * width, Tail{rest});
      }
    }
  }

  template <Write kHow, class Lanes>
  LLTM_INLINE void write_vector(const T* sums, T* c, Lanes lanes) const {
    vector_t<T> sum = load(sums);
    if constexpr (kHow == Write::kAdd) sum += lanes.load_from(c);
    if constexpr (kHow == Write::kStream && std::is_same_v<Lanes, Full>) {
      return stream(c, sum);
    }
    lanes.store_to(c, sum);
  }
};

// Rows of a transposed a, packed for the tiles: [tile][depth][kTileRows].
template <class T>
void pack_rows(const MatrixProduct<T>& args, int64_t row, int64_t rows, int64_t depth_at,
               int64_t depth, T* to) {
  for (int64_t k = 0; k < depth; k += kStrip) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      pack_panel<kTileRows>(
          args.a + (row + i) * args.a_row_stride + (depth_at + k) * args.a_column_stride,
          args.a_column_stride, args.a_row_stride, at_most(kStrip, depth - k),
          at_most(kTileRows, rows - i), to + i * depth + k * kTileRows);
    }
  }
}

// Whether all vectors of c are whole lines, and more of them than caches are worth.
template <class T>
bool is_streamed(const MatrixProduct<T>& args) {
  const int64_t row_bytes = args.c_row_stride * sizeof(T);
  return kStreams && args.rows * row_bytes >= kStreamedBytes && row_bytes % kVectorBytes == 0 &&
         reinterpret_cast<uintptr_t>(args.c) % kVectorBytes == 0;
}

// The panels [first, last) of columns against one block of rows.
template <class T>
void multiply_panels(const MatrixProduct<T>& args, int64_t row, int64_t rows, int64_t first,
                     int64_t last) {
  const bool transposed = args.a_row_stride == 1;
  const int64_t depth_block = transposed ? kTransposedDepth : kDepthBlock;
  const Write once = args.depth <= depth_block && is_streamed(args) ? Write::kStream : Write::kSet;
  alignas(kVectorBytes) T packed_a[kTransposedRows<T> * kTransposedDepth];
  alignas(kVectorBytes) T packed_b[kPackedPanels * kTransposedDepth * kPanelWidth<T>];
  // Where a is read in place, the panels of b, which have more terms then, take its room.
  T* const panels = transposed ? packed_b : packed_a;
  static_assert(kPackedPanels * kDepthBlock * kPanelWidth<T> * sizeof(T) <= kPackedBytes);
  const int64_t group = args.b_column_stride == 1 ? kPackedPanels : 1;
  // At least once: a product of depth 0 is all zeros.
  for (int64_t k = 0; k == 0 || k < args.depth; k += depth_block) {
    const int64_t depth = at_most(depth_block, args.depth - k);
    if (transposed) pack_rows(args, row, rows, k, depth, packed_a);
    const Write how = k > 0 ? Write::kAdd : once;
    const Block<T> block{args, row, rows, k, depth, transposed ? packed_a : nullptr, how, panels};
    for (int64_t p = first; p < last; p += group) block.run(p, at_most(p + group, last));
  }
  if (once == Write::kStream) end_stream();
}

template <class T>
void matmul(const MatrixProduct<T>& args, int64_t begin, int64_t end) {
  const int64_t panels = UnevenPanels(args.columns, kWidth<T>).count();
  // A transposed b is read along the columns, each from end to end before the next: in pieces, one
  // to a block of the depth, its pages would have to be found again for each.
  const bool along = args.b_row_stride == 1 && args.a_row_stride != 1;
  for (int64_t item = begin; item < end;) {
    const int64_t first = item % panels;
    const int64_t last = at_most(panels, first + (along ? 1 : end - item));
    const int64_t row = item / panels * args.row_block;
    multiply_panels(args, row, at_most(args.row_block, args.rows - row), first, last);
    item += last - first;
  }
}
