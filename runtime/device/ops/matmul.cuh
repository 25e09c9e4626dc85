// matmul: a tile of BM rows by BN columns of a[M,K] b[K,N] (or b[N,K]), with bias, activation and
// epilogue.
//
// The loader brings slices of b in pages. Consumers stage rows of a in the scratch memory,
// multiply, and finish each element once. The op's number of rows, the types and the machine decide
// the method, never how the op is cut:
//  - dot, few rows (C::few_rows, decoding): threads split K and add up at the end, because reading
//    b takes all the time (matmul_few.cuh); on tensor cores where they suit (matmul_row.cuh,
//    matmul_few_mma.cuh);
//  - block, many rows: each thread computes a block of the result in registers, over K in order
//    (matmul_block.cuh; thread_tile.cuh where boxes bring both operands);
//  - mma and wgmma, many rows of 16 or 8 bits: tensor cores (matmul_tensor.cuh). Tiles may cover a
//    part of K, BK elements: then the result is the part's sum, and other tasks add up the parts.
// With each method the order of additions depends on K, BK, N and the types alone, so that the rows
// and columns of tiles may be chosen freely.

namespace maco::ops {

// What a method is (C::method), where it says nothing else; matmul_ways.cuh has those above. The
// task's code is its load<C> and multiply<C>; only these know where sums are in the meantime.
struct AnyMethod {
  // Whether a launch with few rows takes dot instead; whether no other launch takes the method.
  static constexpr bool kDot = false, kFewOnly = false;
  // Whether tensor cores make tiles that may be sent; whether four warps multiply together.
  static constexpr bool kTiles = false, kGroups = false;
  // Fills pages, for calls that load something.
  template <class C>
  static MACO_FN void load(Context&, const Args&, u32) {}
};

// Elements in the CTA's shared memory, aligned to their vector.
template <int N, class T, class A>
MACO_FN void shared_vec(const T* p, A (&to)[N]) {
  constexpr int kPiece = vector_width(N, sizeof(T));
  MACO_UNROLL
  for (int i = 0; i < N; i += kPiece) {
    const Vec<T, kPiece> v = *(const Vec<T, kPiece>*)(p + i);
    MACO_UNROLL
    for (int e = 0; e < kPiece; ++e) to[i + e] = to_acc(v.v[e]);
  }
}

// The elements of a vector.
template <int N, class T, class A>
MACO_FN void unpack(const Vec<T, N>& v, A (&to)[N]) {
  if constexpr (is_same<T, bf16> && N % 2 == 0) {
    const auto pairs = bits_as<Vec<u32, N / 2>>(v);
    MACO_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      to[2 * i] = float_of(pairs.v[i] << 16);
      to[2 * i + 1] = float_of(pairs.v[i] & 0xffff0000u);
    }
  } else {
    MACO_UNROLL
    for (int i = 0; i < N; ++i) to[i] = to_acc(v.v[i]);
  }
}

// Whether tensor cores can multiply few rows (matmul_few_mma). They do so from two rows on: with
// one row most of their work would be wasted.
template <class C>
constexpr bool kFewOnCores = kHasMma && kWarps > 1 && C::transpose_b&& C::K % 8 == 0 &&
                             is_same<typename C::X, typename C::W> &&
                             (is_same<typename C::X, bf16> || is_same<typename C::X, f16>);

// The box of b in a page, if boxes bring it.
template <class C, bool kBoxes>
struct FewSlice {
  static constexpr i64 kRows = 0, kCols = 0;
};
template <class C>
struct FewSlice<C, true> {
  static constexpr i64 kRows = C::b_box_rows, kCols = C::b_box_cols;
};

// Pages of boxes as a lone row takes them, one by one. A warp has every kWarps-th column of a page:
// column(page, i) is its i-th column of the current page, where this lane's part begins. (A page's
// number in its slice matters where slices come as a whole: ShortPages in matmul_line.cuh.)
template <class X, i64 kPitch, int kCount>
struct PagesInTurn {
  static constexpr int kPages = kCount;  // of a slice
  const X* first;
  PageUse use;
  MACO_FN void take(PageTaker& pages, int) {
    use = pages.next_page();
    first = (const X*)pages.take() + warp() * kPitch + warp_lane() * (16 / (int)sizeof(X));
  }
  MACO_FN const X* column(int, int i) const { return first + i * kWarps * kPitch; }
  MACO_FN void release(PageTaker& pages, int) { pages.release_page(use); }
};

// How the slices of b lie in pages. kRows: the most rows, with the method for few rows; 0: the
// other method. kCores: few rows on tensor cores.
template <class C, int kRows, bool kCores = false>
struct MatmulPages {
  using X = typename C::X;
  using W = typename C::W;
  static constexpr bool kFew = kRows > 0, kOnCores = kCores;
  static constexpr i64 kBytes = sizeof(W);
  static constexpr int kParts =
      C::has_pair ? 2 : 1;  // of a page: columns of b, then of the other b
  static constexpr int kVec = (int)least(8, 16 / kBytes);  // elements that a thread takes at a time
  static constexpr i64 kWhole = round_up(C::K, kVec);
  // Scratch memory for a; without transpose_b the rest is for adding up.
  static constexpr i64 kStageBytes = C::transpose_b ? kScratchBytes : kScratchBytes - 4096;

  // transpose_b: a row of the page is a column of b, `depth` elements long.
  // kStep: what a warp takes at a time; slices of whole steps keep the order of additions.
  static constexpr i64 kStep = 32 * kVec;
  using Slice = FewSlice<C, C::boxes>;  // if boxes bring it
  static constexpr i64 kFewCols = C::boxes
                                      ? Slice::kRows * kParts
                                      : least(least(kRows <= 2 || kCores ? 16 : 32, C::BN* kParts),
                                              C::b_page_bytes / (kStep * kBytes));
  static constexpr i64 kFewDepth =
      C::boxes ? Slice::kCols
               : least(kWhole,
                       least(round_down(C::b_page_bytes / (most(kFewCols, 1) * kBytes), kStep),
                             round_down(kStageBytes / (most(kRows, 1) * (i64)sizeof(X)), kStep)));
  // An odd number of 16 bytes from row to row: lanes that read down a column then use different
  // banks.
  static constexpr i64 kManyDepth =
      least(kWhole, round_down(C::b_page_bytes / C::BN - 16, 32) / kBytes);
  static constexpr i64 kManyPitch = ((kManyDepth * kBytes + 15) / 16 | 1) * 16 / kBytes;

  // Otherwise a row of the page is a row of b. The slice's width decides how many lanes split K: it
  // must not depend on the tile.
  static constexpr i64 kSliceCols = least(C::slice, C::BN);
  static constexpr i64 kPlainCols = kFew ? kSliceCols : C::BN;
  static constexpr i64 kPlainPitch = round_up(kPlainCols, kVec);
  static constexpr i64 kPlainMost =
      least(C::b_page_bytes / (kPlainPitch * kBytes),
            kFew ? kStageBytes / (most(kRows, 1) * (i64)sizeof(X)) : 1 << 30);
  static constexpr i64 kPlainDepth =
      least(kWhole, round_down(kPlainMost, kFew&& kPlainMost >= 128 ? 128 : 8));

  // Few rows on tensor cores: columns whose sums fit in a thread's registers at a time.
  static constexpr i64 kPass = least(round_up(C::BN * kParts, 16), kRows > 16 ? 64 : 128) / kParts;

  // of b in a page, of all its parts
  static constexpr i64 kPageCols = C::transpose_b ? (kFew ? kFewCols : C::BN) : kPlainCols;
  // of the result
  static constexpr i64 kCols = kPageCols / kParts;
  // of K in a page
  static constexpr i64 kDepth = C::transpose_b ? (kFew ? kFewDepth : kManyDepth) : kPlainDepth;
  // elements from row to row
  static constexpr i64 kPitch = C::transpose_b ? (kFew ? kFewDepth : kManyPitch) : kPlainPitch;
  template <class T>
  using Source = PagesInTurn<T, kPitch, (int)((C::K + kDepth - 1) / kDepth)>;
  static_assert(kDepth > 0 && kCols > 0, "a page holds a slice");
  static_assert(kPitch * (C::transpose_b ? kPageCols : kDepth) * kBytes <= C::b_page_bytes,
                "a slice fits in a page");
  static_assert(!C::has_pair || (C::transpose_b && kFew && kPageCols % 2 == 0),
                "pairs that take dot are of few rows, transposed");
};

// Which tile a task computes (C::Order): the task's number says it.
template <class C>
struct TilesInOrder {
  static MACO_FN u32 tile(const Context&, u32 tile) { return tile; }
};

// The tile's rows at launch, its place, and its part of K: blocks part, part + kParts, ..., at most
// BK elements in all. So parts that run at the same time read adjacent memory. Tiles of a part
// follow those of the part before.
template <class C>
struct MatmulTile {
  static constexpr i64 kAcross = (C::N + C::BN - 1) / C::BN;
  static constexpr int kParts = (int)((C::K + C::BK - 1) / C::BK);
  i64 row, rows, col, end;  // columns [col, end)
  int part;
  static MACO_FN constexpr bool has_all_rows() {
    if constexpr (C::rows::is_constant) return C::rows::value <= C::BM;
    return false;
  }
  static MACO_FN constexpr u32 tiles() {
    static_assert(kParts == 1 || C::rows::is_constant,
                  "parts of K are of rows that are always there");
    if constexpr (kParts > 1) return (u32)(kAcross * ((C::rows::value + C::BM - 1) / C::BM));
    return 0;
  }
  // The part of K by a task's number: mates follow each other; otherwise all tiles of a part follow
  // each other.
  static MACO_FN int part_of(u32 task) {
    if constexpr (kParts > 1) return (int)(C::has_halve ? task % 2 : task / tiles());
    return 0;
  }
  static MACO_FN u32 tile_of(u32 task) {
    if constexpr (kParts > 1) return C::has_halve ? task / 2 : task % tiles();
    return task;
  }
  MACO_FN MatmulTile(Context& ctx, u32 task) : part(part_of(task)) {
    const u32 tile = C::Order::tile(ctx, tile_of(task));
    // If every tile has all of its rows, their number is a constant, which the compiler folds.
    if constexpr (has_all_rows()) {
      row = 0;
      rows = C::rows::value;
    } else {
      row = (i64)(tile / kAcross) * C::BM;
      rows = least(C::BM, C::rows::get(ctx) - row);
    }
    col = (i64)(tile % kAcross) * C::BN;
    end = least(C::N, col + C::BN);
  }
};

// Calls f(MatmulWay) with the way that this launch takes, for loader and consumers alike. kRows:
// the most rows of dot; 0: many rows. kCores: dot on tensor cores. The op's rows decide, however
// they are cut into tiles.
template <int kRows, bool kCores = false>
struct MatmulWay {
  static constexpr int rows = kRows;
  static constexpr bool cores = kCores;
};
template <class C, class F>
MACO_FN void matmul_way(Context& ctx, F f) {
  using Method = typename C::method;
  if constexpr (!Method::kDot) {
    f(MatmulWay<0>());
  } else if constexpr (Method::kFewOnly && C::plan_rows::is_constant) {
    constexpr bool kLone = C::plan_rows::value <= 1;
    f(MatmulWay<kLone ? 1 : (int)C::BM, kFewOnCores<C> && !kLone>());
  } else {
    const i64 rows = C::plan_rows::get(ctx);
    if (rows <= 1) {
      f(MatmulWay<1>());
    } else if (Method::kFewOnly || rows <= C::few_rows) {
      f(MatmulWay<(int)least(C::BM, C::few_rows), kFewOnCores<C>>());
    } else if constexpr (!Method::kFewOnly) {
      f(MatmulWay<0>());
    }
  }
}

// Copies a slice of b: `rows` runs of `count` elements, kLd apart in b, into rows of the page.
// kRows and kCount are those of a whole slice, whose copies are unrolled: one warp issues them, and
// must keep up with the memory.
template <class P, i64 kLd, i64 kRows, i64 kCount, class W>
MACO_FN void matmul_copy(char* page, const W* b, i64 rows, i64 count) {
  constexpr i64 kTo = P::kPitch * P::kBytes, kFrom = kLd * P::kBytes;
  if constexpr (kLd * P::kBytes % 16 == 0 && kCount * P::kBytes % 16 == 0 && kTo % 16 == 0) {
    if (((u64)b & 15) == 0) {
      constexpr i64 kChunks = kCount * P::kBytes / 16;  // of 16 bytes
      constexpr i64 kAcross = least(kLoaders, power_above(kChunks)), kDown = kLoaders / kAcross;
      const i64 down = loader_thread() / kAcross, across = loader_thread() % kAcross;
      char* to = page + down * kTo + across * 16;
      const char* from = (const char*)b + down * kFrom + across * 16;
      if (kLoaders > 1 && rows == kRows && count == kCount) {
        MACO_UNROLL
        for (i64 r = 0; r < kRows; r += kDown) {
          MACO_UNROLL
          for (i64 c = 0; c < kChunks; c += kAcross)
            if (r + down < kRows && c + across < kChunks)
              copy16(to + r * kTo + c * 16, from + r * kFrom + c * 16);
        }
        return;
      }
      const i64 chunks = count * P::kBytes / 16;
      for (i64 r = 0; r + down < rows; r += kDown)
        for (i64 c = 0; c + across < chunks; c += kAcross)
          copy16(to + r * kTo + c * 16, from + r * kFrom + c * 16);
      return;
    }
  }
  for (i64 r = 0; r < rows; ++r) page_copy(page + r * kTo, b + r * kLd, count);
}

// Calls f(n, k) for each slice of columns [first, end), in the order in which the consumers take
// them, until it returns false: `pass` columns over all of K, in slices of `cols` columns and
// `depth` of K. Index: the type of n and k; boxes have 32 bits.
template <class Index, class F>
MACO_FN bool matmul_slices(Index first, Index end, Index pass, Index cols, Index depth, Index K,
                           F f) {
  for (; first < end; first += pass)
    for (Index k = 0; k < K; k += depth)
      for (Index n = first; n < first + pass && n < end; n += cols)
        if (!f(n, k)) return false;
  return true;
}
// If a thread has the sums of one slice at a time, a pass is a slice's columns.
template <class P>
constexpr i64 kMatmulPass = P::kOnCores ? P::kPass : P::kCols;

// Whether all weights may come before the task's waits are over. Of a pair both matrices must.
template <class C>
MACO_FN constexpr bool all_b_ahead() {
  if constexpr (C::has_pair) return C::b_ahead && C::other_ahead;
  return C::b_ahead;
}
template <class C>
MACO_FN constexpr bool any_b_ahead() {
  if constexpr (C::has_pair) return C::b_ahead || C::other_ahead;
  return C::b_ahead;
}

// The operand that is a pair's other b.
template <class C>
MACO_FN constexpr int other_of() {
  if constexpr (C::has_pair) return C::other_at;
  return 1;
}

// Pages in flight of data that is read once: 48 KB nearly reach the memory bandwidth, and let other
// traffic through.
constexpr u32 kStreamedPages =
    Cta::kPageBytes < 24576 && Cta::kPageBytes > 0 ? 49152 / Cta::kPageBytes : 2;

// Fills pages with slices of b, and of a pair's other b, as boxes of `part` bytes each; `depth` and
// `all` of K in bytes. One of the loader's threads requests them. All matmuls of a kernel share
// this function: the instruction cache matters more than what a loop with constants would save.
MACO_OP void fill_row_boxes(Context& ctx, const TensorMap* b, const TensorMap* other, u32 part,
                            int first, int end, int pass, int cols, int depth, int all) {
  PageFiller pages(ctx);
  int lane;
  if (elected(lane)) {
    BoxFiller<kStreamedPages> boxes(pages);
    matmul_slices(first, end, pass, cols, depth, all, [&](int n, int k) {
      if (!boxes.acquire(other ? 2 * part : part)) return false;
      char* page = pages.page();
      pages.copy_rows(page, b, n, k);
      if (other) pages.copy_rows(page + part, other, n, k);
      boxes.publish();
      return true;
    });
  }
  pages.finish(lane);
}
template <class C, class P>
MACO_FN void matmul_fill_rows(Context& ctx, const Args& args, const MatmulTile<C>& t) {
  C::Rows::prefetch(args);
  if constexpr (!all_b_ahead<C>()) boxes_begin();
  const TensorMap* other = nullptr;
  if constexpr (C::has_pair) other = args.map(C::other_at);
  fill_row_boxes(ctx, args.map(1), other, (u32)(P::kCols * P::kPitch * P::kBytes), (int)t.col,
                 (int)t.end, (int)kMatmulPass<P>, (int)P::kCols, (int)(P::kDepth * P::kBytes),
                 (int)(C::K * P::kBytes));
}

template <class C, class P>
MACO_FN void matmul_fill(Context& ctx, const Args& args, u32 index) {
  using W = typename C::W;
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  if constexpr (C::boxes) return matmul_fill_rows<C, P>(ctx, args, t);
  const W* b = args.ptr<const W>(1);
  PageFiller pages(ctx);
  // Returns false if the run stops.
  const auto fill = [&](i64 n, i64 k) {
    const i64 cols = least(P::kCols, t.end - n), depth = least(P::kDepth, C::K - k);
    char* page = pages.acquire();
    if (!page) return false;
    if constexpr (C::transpose_b) {
      matmul_copy<P, C::K, P::kCols, P::kDepth>(page, b + n * C::K + k, cols, depth);
      if constexpr (C::has_pair)
        matmul_copy<P, C::K, P::kCols, P::kDepth>(page + P::kCols * P::kPitch * P::kBytes,
                                                  args.ptr<const W>(C::other_at) + n * C::K + k,
                                                  cols, depth);
    } else {
      matmul_copy<P, C::N, P::kDepth, P::kCols>(page, b + k * C::N + n, depth, cols);
    }
    pages.publish();
    return true;
  };
  if (!matmul_slices<i64>(t.col, t.end, kMatmulPass<P>, P::kCols, P::kDepth, C::K, fill)) return;
  pages.finish();
}

// The tile's rows of a, and its rows of the result.
template <class C>
MACO_FN auto matmul_rows(const MatmulTile<C>& t, const Args& args) {
  return to_read<typename C::X, C::a_packets>(args, 0) + t.row * C::K;
}
template <class C>
MACO_FN auto matmul_results(const MatmulTile<C>& t, const Args& args) {
  return to_write<typename C::Y, C::y_packets>(args, C::y_at) + t.row * C::N;
}

// Stores elements [i, i + V) of a row of a. kPaired: the four words of each 16 bytes in the order
// 0, 2, 1, 3, so that what a fragment b takes together is adjacent in registers.
template <bool kPaired, class X, int V>
MACO_FN void put_run(X* to, i64 i, const Vec<X, V>& v) {
  if constexpr (!kPaired) {
    *(Vec<X, V>*)(to + i) = v;
  } else if constexpr (sizeof(v) == 16) {
    const auto words = bits_as<Vec<u32, 4>>(v);
    *(Vec<u32, 4>*)(to + i) = {{words.v[0], words.v[2], words.v[1], words.v[3]}};
  } else {
    constexpr int kWords = (int)sizeof(v) / 4;
    static_assert(kWords * 4 == (int)sizeof(v) && kWords <= 2, "whole words");
    const auto words = bits_as<Vec<u32, kWords>>(v);
    MACO_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const i64 word = i * (i64)sizeof(X) / 4 + w;
      ((u32*)to)[(word & ~(i64)3) | (word & 1) << 1 | (word >> 1 & 1)] = words.v[w];
    }
  }
}

// The same for packets: all vectors are requested before the first arrives.
template <class C, i64 kHeight, i64 kPitch, int V, bool kPaired>
MACO_FN void matmul_stage_packets(Context& ctx, const MatmulTile<C>& t, const Args& args,
                                  typename C::X* to, i64 k, i64 depth) {
  using X = typename C::X;
  constexpr bool kLone = kHeight == 1;
  constexpr i64 kMost = kHeight * round_up(kPitch, V) / V;
  constexpr int kAtOnce = (int)least(8, (kMost + kConsumers - 1) / kConsumers);
  const Received<X> a = received<X>(args, 0) + t.row * C::K + k;
  const int across = (int)((depth + V - 1) / V), all = (int)kHeight * across;
  for (int first = warp() * kWarpLanes; first < all; first += kAtOnce * kConsumers) {
    PacketRun<X, V> runs[kAtOnce];
    int row[kAtOnce], at[kAtOnce];
    MACO_UNROLL
    for (int b = 0; b < kAtOnce; ++b) {
      const int own = first + b * kConsumers + warp_lane(), i = own < all ? own : all - 1;
      row[b] = kLone ? 0 : i / across;
      at[b] = (i - row[b] * across) * V;
    }
    receive_together(ctx, 0, runs, [&](int b) {
      return a + ((kLone ? 0 : least(row[b], t.rows - 1) * C::K) + at[b]);
    });
    MACO_UNROLL
    for (int b = 0; b < kAtOnce; ++b) {
      Vec<X, V> v = {};
      const bool there = kLone || row[b] < t.rows;
      if (there) v = runs[b].values();
      if constexpr (C::Rows::kChange)
        if (there)
          v = C::Rows::template change<V>(args, t, ctx.memory()->scales, row[b], k + at[b], v);
      put_run<kPaired>(to + row[b] * kPitch, at[b], v);
    }
  }
}

// Copies columns [k, k + depth) of rows of a to `to`, with kPitch elements a row, as
// C::Rows changes them; rows that the tile lacks become zeros.
template <class C, i64 kHeight, i64 kPitch, bool kPaired = false>
MACO_FN void matmul_stage(Context& ctx, const MatmulTile<C>& t, const Args& args, typename C::X* to,
                          i64 k, i64 depth) {
  using X = typename C::X;
  constexpr int V = vector_width(C::K % 8 == 0 ? 8 : C::K, sizeof(X));
  if constexpr (C::a_packets)
    return matmul_stage_packets<C, kHeight, kPitch, V, kPaired>(ctx, t, args, to, k, depth);
  constexpr i64 kAcross = least(kConsumers, power_above(kPitch / V));
  const X* a = args.ptr<const X>(0) + t.row * C::K + k;
  for (i64 r = consumer_thread() / kAcross; r < kHeight; r += kConsumers / kAcross) {
    for (i64 i = (consumer_thread() % kAcross) * V; i < depth; i += kAcross * V) {
      Vec<X, V> v = {};
      if (r < t.rows) v = gload_vec<V>(a + r * C::K + i);
      if constexpr (C::Rows::kChange)
        if (r < t.rows) v = C::Rows::template change<V>(args, t, ctx.memory()->scales, r, k + i, v);
      put_run<kPaired>(to + r * kPitch, i, v);
    }
  }
}

// What becomes of rows of a before they are multiplied (C::Rows): they stay as they are. A stage
// that changes them derives from ChangedRows.
template <class C>
struct PlainRows {
  using X = typename C::X;
  // Whether change() does anything.
  static constexpr bool kChange = false;
  // Whether stage_lone() reads a row once, and so takes the place of begin() and change().
  static constexpr bool kWholeRow = false;
  // The loader's threads fetch what all tasks will read.
  static MACO_FN void prefetch(const Args&) {}
  // Prepares change(). kLone: the op has one row.
  template <bool kLone>
  static MACO_FN void begin(Context&, const MatmulTile<C>&, const Args&) {}
  // Elements [k, k + V) of row r of the tile. `scales`: a number for each row, which begin() may
  // have stored.
  template <int V>
  static MACO_FN Vec<X, V> change(const Args&, const MatmulTile<C>&, const float*, i64, i64,
                                  const Vec<X, V>& x) {
    return x;
  }
  // Stages a lone row as a whole (matmul_stage).
  template <i64 kPitch, bool kPaired>
  static MACO_FN void stage_lone(Context& ctx, const MatmulTile<C>& t, const Args& args, X* to) {
    matmul_stage<C, 1, kPitch, kPaired>(ctx, t, args, to, 0, C::K);
  }
  // Loads a lone row as threads hold it (LineRow in matmul_line.cuh).
  template <class Line>
  static MACO_FN void load_line(Context&, const MatmulTile<C>& t, const Args& args, Line& row) {
    row.load(t, args);
  }
};
// Rows whose elements each change by themselves. Rows: the stage, with begin() and change() of its
// own.
template <class C, class Rows>
struct ChangedRows : PlainRows<C> {
  using X = typename C::X;
  static constexpr bool kChange = true;
  template <i64 kPitch, bool kPaired>
  static MACO_FN void stage_lone(Context& ctx, const MatmulTile<C>& t, const Args& args, X* to) {
    Rows::template begin<true>(ctx, t, args);
    matmul_stage<C, 1, kPitch, kPaired>(ctx, t, args, to, 0, C::K);
  }
  template <class Line>
  static MACO_FN void load_line(Context& ctx, const MatmulTile<C>& t, const Args& args, Line& row) {
    Rows::template begin<true>(ctx, t, args);
    row.load(t, args);
    row.each([&](int k) {
      const auto x = bits_as<Vec<X, Line::V>>(row.step(k));
      row.put(k, Rows::template change<Line::V>(args, t, ctx.memory()->scales, 0, row.place(k), x));
    });
  }
};

// Stores the finished element at `to`; what others wait for goes first.
template <class C, class To, class A>
MACO_FN void matmul_put(const MatmulTile<C>& t, const Args& args, const To& to, i64 row, i64 col,
                        A result) {
  const auto y = from_acc<typename C::Y>(result);
  C::Send::element(t, args, row, col, y);
  gstore(to, y);
}

// Finishes one sum, or both sums of a pair.
template <class C, class... A>
MACO_FN void matmul_store(const MatmulTile<C>& t, const Args& args, i64 row, i64 col, A... sums) {
  if (row >= t.rows || col >= t.end) return;
  matmul_put(t, args, matmul_results(t, args) + row * C::N + col, row, col,
             C::finish(args, t.row + row, col, sums...));
}

// The same with operands that were loaded before.
template <class C, class... A>
MACO_FN void matmul_finish(const MatmulTile<C>& t, const Args& args, i64 row, i64 col,
                           const typename C::More& more, A... sums) {
  if (row >= t.rows || col >= t.end) return;
  matmul_put(t, args, matmul_results(t, args) + row * C::N + col, row, col,
             C::finish(more, sums...));
}

}  // namespace maco::ops
