// matmul: a tile of BM rows by BN columns of a[M,K] b[K,N] (or b[N,K]), with bias, activation and
// epilogue.
//
// The loader brings slices of b in pages; consumers stage rows of a in the scratch memory,
// multiply, and finish each element once: K is never split between tasks. Ways to multiply, chosen
// by how many rows the op has, their types and the machine, never by how they are cut:
//  - dot, few rows (C::few_rows, decoding): threads split K and add up at the end, because reading
//    b is all that takes time; on tensor cores where they suit (matmul_few_mma.cuh);
//  - block, many rows: each thread has a block of the result in registers and runs through K in
//    order;
//  - mma and wgmma, many rows of 16-bit floats: tensor cores (matmul_tensor.cuh).
// Within each way the order of sums depends on K, N and the types alone, so that tiles may be
// chosen freely.

namespace maco::ops {

// The ways above; by_...: dot or the other, whichever suits the rows that the launch has.
enum class MatmulMethod : u8 { dot, block, mma, wgmma, by_rows, by_rows_mma };
MACO_FN constexpr bool takes_dot(MatmulMethod m) {
  return m == MatmulMethod::dot || m >= MatmulMethod::by_rows;
}
MACO_FN constexpr bool takes_mma(MatmulMethod m) {
  return m == MatmulMethod::mma || m == MatmulMethod::by_rows_mma;
}
MACO_FN constexpr bool takes_wgmma(MatmulMethod m) { return m == MatmulMethod::wgmma; }

MACO_FN float mul_add(float a, float b, float c) { return ffma(a, b, c); }
MACO_FN i32 mul_add(i32 a, i32 b, i32 c) { return fn::add(fn::mul(a, b), c); }

// Elements that lie in the CTA's shared memory, aligned to their vector.
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

// A vector in shared memory, aligned to it, as it is there; and its elements.
template <int N, class T>
MACO_FN Vec<T, N> shared_raw(const T* p) {
  if constexpr (N * sizeof(T) == 16) {
    return bits_as<Vec<T, N>>(shared_load16(p));
  } else {
    return *(const Vec<T, N>*)p;
  }
}
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

// Can tensor cores do few rows (matmul_few_mma)? They do where there is more than one: of one, they
// would do nothing most of the time.
template <class C>
constexpr bool kFewOnCores = kHasMma && kWarps > 1 && C::transpose_b&& C::K % 8 == 0 &&
                             is_same<typename C::X, typename C::W> &&
                             (is_same<typename C::X, bf16> || is_same<typename C::X, f16>);

// The box of b that a page has, if boxes bring it.
template <class C, bool kBoxes>
struct FewSlice {
  static constexpr i64 kRows = 0, kCols = 0;
};
template <class C>
struct FewSlice<C, true> {
  static constexpr i64 kRows = C::b_box_rows, kCols = C::b_box_cols;
};

// How the slices of b lie in pages. kRows: the most rows, of the way for few rows; 0: the other
// way. kCores: few rows on tensor cores.
template <class C, int kRows, bool kCores = false>
struct MatmulPages {
  using X = typename C::X;
  using W = typename C::W;
  static constexpr bool kFew = kRows > 0, kOnCores = kCores;
  static constexpr i64 kBytes = sizeof(W);
  static constexpr int kParts = C::paired ? 2 : 1;  // of a page: columns of b, then of the other
  static constexpr int kVec = (int)least(8, 16 / kBytes);  // elements that a thread takes at a time
  static constexpr i64 kWhole = round_up(C::K, kVec);
  // Scratch memory for a; without transpose_b the rest is for adding up.
  static constexpr i64 kStageBytes = C::transpose_b ? kScratchBytes : kScratchBytes - 4096;

  // transpose_b: a row of the page is a column of b, `depth` elements long.
  // what a warp takes at a time: slices of whole steps keep the order of sums
  static constexpr i64 kStep = 32 * kVec;
  using Slice = FewSlice<C, C::boxes>;  // where boxes bring it
  static constexpr i64 kFewCols = C::boxes
                                      ? Slice::kRows * kParts
                                      : least(least(kRows <= 2 || kCores ? 16 : 32, C::BN* kParts),
                                              C::b_page_bytes / (kStep * kBytes));
  static constexpr i64 kFewDepth =
      C::boxes ? Slice::kCols
               : least(kWhole,
                       least(round_down(C::b_page_bytes / (most(kFewCols, 1) * kBytes), kStep),
                             round_down(kStageBytes / (most(kRows, 1) * (i64)sizeof(X)), kStep)));
  // An odd number of 16 bytes from row to row: then lanes reading down a column meet different
  // banks.
  static constexpr i64 kManyDepth =
      least(kWhole, round_down(C::b_page_bytes / C::BN - 16, 32) / kBytes);
  static constexpr i64 kManyPitch = ((kManyDepth * kBytes + 15) / 16 | 1) * 16 / kBytes;

  // Otherwise a row of the page is a row of b. The width of a slice decides how many lanes split K:
  // it must not depend on the tile.
  static constexpr i64 kSliceCols = least(C::slice, C::BN);
  static constexpr i64 kPlainCols = kFew ? kSliceCols : C::BN;
  static constexpr i64 kPlainPitch = round_up(kPlainCols, kVec);
  static constexpr i64 kPlainMost =
      least(C::b_page_bytes / (kPlainPitch * kBytes),
            kFew ? kStageBytes / (most(kRows, 1) * (i64)sizeof(X)) : 1 << 30);
  static constexpr i64 kPlainDepth =
      least(kWhole, round_down(kPlainMost, kFew&& kPlainMost >= 128 ? 128 : 8));

  // Few rows on tensor cores: columns whose sums a thread can have in registers at a time.
  static constexpr i64 kPass = least(round_up(C::BN * kParts, 16), kRows > 16 ? 64 : 128) / kParts;

  // of b in a page, of all its parts
  static constexpr i64 kPageCols = C::transpose_b ? (kFew ? kFewCols : C::BN) : kPlainCols;
  // of the result
  static constexpr i64 kCols = kPageCols / kParts;
  // of K in a page
  static constexpr i64 kDepth = C::transpose_b ? (kFew ? kFewDepth : kManyDepth) : kPlainDepth;
  // elements from row to row
  static constexpr i64 kPitch = C::transpose_b ? (kFew ? kFewDepth : kManyPitch) : kPlainPitch;
  static_assert(kDepth > 0 && kCols > 0, "a page holds a slice");
  static_assert(kPitch * (C::transpose_b ? kPageCols : kDepth) * kBytes <= C::b_page_bytes,
                "a slice fits in a page");
  static_assert(!C::paired || (C::transpose_b && kFew && kPageCols % 2 == 0),
                "pairs are of few rows, transposed");
};

// Rows that tile has at launch, and where it lies.
template <class C>
struct MatmulTile {
  static constexpr i64 kAcross = (C::N + C::BN - 1) / C::BN;
  i64 row, rows, col, end;  // columns [col, end)
  MACO_FN MatmulTile(Context& ctx, u32 tile) {
    row = (i64)(tile / kAcross) * C::BM;
    rows = least(C::BM, C::rows::get(ctx) - row);
    col = (i64)(tile % kAcross) * C::BN;
    end = least(C::N, col + C::BN);
  }
};

// f(MatmulWay) for the way that this launch takes: loader and consumers alike. kRows: the most rows
// of dot; 0: many rows. kCores: dot on tensor cores. However rows are cut into tiles, those of the
// op decide.
template <int kRows, bool kCores = false>
struct MatmulWay {
  static constexpr int rows = kRows;
  static constexpr bool cores = kCores;
};
template <class C, class F>
MACO_FN void matmul_way(Context& ctx, F f) {
  if constexpr (!takes_dot(C::method)) {
    f(MatmulWay<0>());
  } else if constexpr (C::method == MatmulMethod::dot && C::plan_rows::is_constant) {
    constexpr bool kLone = C::plan_rows::value <= 1;
    f(MatmulWay<kLone ? 1 : (int)C::BM, kFewOnCores<C> && !kLone>());
  } else {
    const i64 rows = C::plan_rows::get(ctx);
    if (rows <= 1) {
      f(MatmulWay<1>());
    } else if (C::method == MatmulMethod::dot || rows <= C::few_rows) {
      f(MatmulWay<(int)least(C::BM, C::few_rows), kFewOnCores<C>>());
    } else if constexpr (C::method != MatmulMethod::dot) {
      f(MatmulWay<0>());
    }
  }
}

// Copies a slice of b: `rows` runs of `count` elements, kLd apart in b, into rows of the page.
// kRows and kCount are those of a whole slice, whose copies are unrolled: a lone warp issues them,
// and it must keep up with the memory.
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

// f(n, k) for each slice of the tile, in the order in which the consumers take them, until it is
// false.
template <class C, class P, class F>
MACO_FN bool matmul_slices(const MatmulTile<C>& t, F f) {
  if constexpr (P::kOnCores) {
    for (i64 pass = t.col; pass < t.end; pass += P::kPass)
      for (i64 k = 0; k < C::K; k += P::kDepth)
        for (i64 n = pass; n < least(t.end, pass + P::kPass); n += P::kCols)
          if (!f(n, k)) return false;
  } else {
    for (i64 n = t.col; n < t.end; n += P::kCols)
      for (i64 k = 0; k < C::K; k += P::kDepth)
        if (!f(n, k)) return false;
  }
  return true;
}

// In boxes: one of the loader's threads asks for them, in the order of matmul_slices.
template <class C, class P>
MACO_FN void matmul_fill_rows(Context& ctx, const Args& args, const MatmulTile<C>& t) {
  constexpr u32 kPart = (u32)(P::kCols * P::kPitch * P::kBytes);
  // Pages in flight: 48 KB nearly reach the memory's rate, and let others through.
  constexpr u32 kStreamed = Cta::kPageBytes < 24576 ? 49152 / Cta::kPageBytes : 2;
  constexpr int kDepth = (int)P::kDepth, kPass = (int)(P::kOnCores ? P::kPass : P::kCols);
  // The norm's weights are few, but far away when the consumers come to them.
  if constexpr (C::normed) {
    const char* weights = args.ptr<const char>(C::kNorm);
    for (i64 i = loader_thread() * kLineBytes; i < C::K * (i64)sizeof(typename C::G);
         i += kLoaders * kLineBytes)
      prefetch(weights + i);
  }
  PageFiller pages(ctx);
  int lane;
  if (elected(lane)) {
    const TensorMap *b = args.map(1), *other = C::paired ? args.map(2) : b;
    if (!C::b_ahead || C::paired) boxes_begin();
    BoxFiller<kStreamed> boxes(pages);
    const int end = (int)t.end;
    bool ok = true;
    for (int pass = (int)t.col; ok && pass < end; pass += kPass)
      for (int k = 0; ok && k < (int)C::K; k += kDepth)
        for (int n = pass; n < pass + kPass && n < end; n += (int)P::kCols) {
          ok = boxes.acquire(kPart * P::kParts);
          if (!ok) break;
          char* page = pages.page();
          pages.copy_rows(page, b, n, k * (int)P::kBytes);
          if (C::paired) pages.copy_rows(page + kPart, other, n, k * (int)P::kBytes);
          boxes.publish();
        }
  }
  pages.finish(lane);
}

template <class C, class P>
MACO_FN void matmul_fill(Context& ctx, const Args& args, u32 index) {
  using W = typename C::W;
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  if constexpr (C::boxes) return matmul_fill_rows<C, P>(ctx, args, t);
  const W* b = args.ptr<const W>(1);
  PageFiller pages(ctx);
  // False if the run stops.
  const auto fill = [&](i64 n, i64 k) {
    const i64 cols = least(P::kCols, t.end - n), depth = least(P::kDepth, C::K - k);
    char* page = pages.acquire();
    if (!page) return false;
    if constexpr (C::transpose_b) {
      matmul_copy<P, C::K, P::kCols, P::kDepth>(page, b + n * C::K + k, cols, depth);
      if constexpr (C::paired)
        matmul_copy<P, C::K, P::kCols, P::kDepth>(page + P::kCols * P::kPitch * P::kBytes,
                                                  args.ptr<const W>(2) + n * C::K + k, cols, depth);
    } else {
      matmul_copy<P, C::N, P::kDepth, P::kCols>(page, b + k * C::N + n, depth, cols);
    }
    pages.publish();
    return true;
  };
  if (!matmul_slices<C, P>(t, fill)) return;
  pages.finish();
}

// What row r of the tile is normed with, as rmsnorm does.
template <class C, class Team>
MACO_FN void matmul_scale(Context& ctx, const MatmulTile<C>& t, const Args& args, i64 r) {
  using X = typename C::X;
  constexpr int V = vector_width(C::K, most(most(sizeof(X), sizeof(typename C::G)), 2));
  Held<X, Walk<Team, C::K, V>, V> row;
  row.load(args.ptr<const X>(0) + (t.row + r) * C::K, C::K);
  const float squares = row_sum<Team>(ctx, row, C::K, [](float v) { return fmul(v, v); });
  if (Team::at() == 0)
    ctx.memory()->scales[r] = frsqrt(fadd(fdiv(squares, (float)C::K), (float)C::eps));
}
// Of all rows of the tile: the only one of the op by all, of several each by a warp. Barriers
// inside, before anyone reads ctx.memory()->scales.
template <class C, bool kLone>
MACO_FN void matmul_scales(Context& ctx, const MatmulTile<C>& t, const Args& args) {
  if constexpr (C::normed) {
    if constexpr (kLone) {
      matmul_scale<C, TeamFor<C::K>>(ctx, t, args, 0);
    } else {
      for (i64 r = warp(); r < t.rows; r += kWarps) matmul_scale<C, WarpTeam>(ctx, t, args, r);
    }
    cta_sync();
  }
}
// Elements [k, k + V) of a row of a, normed and rounded as a tensor of their own would be.
template <class C, int V>
MACO_FN Vec<typename C::X, V> matmul_norm_run(const Args& args, const Vec<typename C::X, V>& x,
                                              float scale, i64 k) {
  using X = typename C::X;
  using G = typename C::G;
  constexpr int kPiece = vector_width(V, sizeof(G));
  Vec<X, V> y;
  MACO_UNROLL
  for (int i = 0; i < V; i += kPiece) {
    const auto g = gload_vec<kPiece>(args.ptr<const G>(C::kNorm) + k + i);
    MACO_UNROLL
    for (int e = 0; e < kPiece; ++e)
      y.v[i + e] = from_acc<X>(fmul(fmul(to_acc(x.v[i + e]), scale), to_acc(g.v[e])));
  }
  return y;
}

// Copies rows of a, columns [k, k + depth), to `to` with kPitch elements a row, normed if they are
// to be; rows that the tile lacks become zeros.
template <class C, i64 kHeight, i64 kPitch>
MACO_FN void matmul_stage(Context& ctx, const MatmulTile<C>& t, const Args& args, typename C::X* to,
                          i64 k, i64 depth) {
  using X = typename C::X;
  constexpr int V = vector_width(C::K % 8 == 0 ? 8 : C::K, sizeof(X));
  constexpr i64 kAcross = least(kConsumers, power_above(kPitch / V));
  const X* a = args.ptr<const X>(0) + t.row * C::K + k;
  for (i64 r = consumer_thread() / kAcross; r < kHeight; r += kConsumers / kAcross) {
    for (i64 i = (consumer_thread() % kAcross) * V; i < depth; i += kAcross * V) {
      Vec<X, V> v = {};
      if (r < t.rows) v = gload_vec<V>(a + r * C::K + i);
      if constexpr (C::normed)
        if (r < t.rows) v = matmul_norm_run<C, V>(args, v, ctx.memory()->scales[r], k + i);
      *(Vec<X, V>*)(to + r * kPitch + i) = v;
    }
  }
}

// A single row, whole, normed on its way: read once.
template <class C>
MACO_FN void matmul_stage_normed(Context& ctx, const MatmulTile<C>& t, const Args& args,
                                 typename C::X* to) {
  using X = typename C::X;
  using G = typename C::G;
  using Team = TeamFor<C::K>;  // as rmsnorm: warps do the same, or all share the row
  constexpr int V = vector_width(C::K, most(most(sizeof(X), sizeof(G)), 2));
  using Row = Walk<Team, C::K, V>;
  Held<X, Row, V> x;
  Held<G, Row, V> g;
  x.load(args.ptr<const X>(0) + t.row * C::K, C::K);
  g.load(args.ptr<const G>(C::kNorm), C::K);
  const float squares = row_sum<Team>(ctx, x, C::K, [](float v) { return fmul(v, v); });
  const float scale = frsqrt(fadd(fdiv(squares, (float)C::K), (float)C::eps));
  x.visit(C::K, [&](int k, i64 i, Vec<X, V> xs) {
    if (Team::kTeams > 1 && k % kWarps != warp()) return;
    const Vec<G, V> gs = g.get(k, i);
    Vec<X, V> ys;
    MACO_UNROLL
    for (int v = 0; v < V; ++v)
      ys.v[v] = from_acc<X>(fmul(fmul(to_acc(xs.v[v]), scale), to_acc(gs.v[v])));
    *(Vec<X, V>*)(to + i) = ys;
  });
}

// Sums: one, or both of a pair.
template <class C, class... A>
MACO_FN void matmul_store(const MatmulTile<C>& t, const Args& args, i64 row, i64 col, A... sums) {
  using Y = typename C::Y;
  if (row >= t.rows || col >= t.end) return;
  gstore(args.ptr<Y>(C::kY) + (t.row + row) * C::N + col,
         from_acc<Y>(C::finish(args, t.row + row, col, sums...)));
}

// The same of what was fetched before.
template <class C, class... A>
MACO_FN void matmul_finish(const MatmulTile<C>& t, const Args& args, i64 row, i64 col,
                           const typename C::More& more, A... sums) {
  using Y = typename C::Y;
  if (row >= t.rows || col >= t.end) return;
  gstore(args.ptr<Y>(C::kY) + (t.row + row) * C::N + col, from_acc<Y>(C::finish(more, sums...)));
}

// ---- few rows, b[N,K]: a warp has columns of a page, its lanes split K -------

// A sum of products of one row on tensor cores. Of 512 bytes of a column of b each lane has 16,
// four lanes a run of 64. As fragment a, the even words of the eight runs are the first eight rows,
// the odd ones the others; words of the row of a, as fragment b, are the columns. So the products
// of a run with itself are on the diagonal: of even words in the upper half, of odd ones in the
// lower. The rest is of no use.
template <bool kBf16>
struct DiagonalSum {
  float even[4] = {}, odd[4] = {};
  MACO_FN void add(const Vec<u32, 4>& x, const Vec<u32, 4>& w) {
    multiply_matrices<kBf16>(even, w.v, x.v[0], x.v[2]);
    multiply_matrices<kBf16>(odd, w.v, x.v[1], x.v[3]);
  }
  // What this lane has of the diagonal.
  MACO_FN float own() const {
    const int row = warp_lane() >> 2;
    if (row >> 1 != (warp_lane() & 3)) return 0;
    return row & 1 ? fadd(even[1], odd[3]) : fadd(even[0], odd[2]);
  }
};

// What a lane takes of some steps of a page, and of a with it: all of it is on its way before the
// first is multiplied.
template <class P, int kSteps, int kRows, int kOwn, i64 kStage, class X, class W>
struct FewPage {
  static constexpr int kVec = P::kVec, kStep = kVec * kWarpLanes;
  Vec<X, kVec> xv[kSteps][kRows];
  Vec<W, kVec> wv[kSteps][kOwn];
  MACO_FN void load(const X* x, const W* page) {
    const X* xs = x + warp_lane() * kVec;
    const W* ws = page + warp() * P::kPitch + warp_lane() * kVec;
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      MACO_UNROLL
      for (int r = 0; r < kRows; ++r) xv[s][r] = shared_raw<kVec>(xs + r * kStage + s * kStep);
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j)
        wv[s][j] = shared_raw<kVec>(ws + j * kWarps * P::kPitch + s * kStep);
    }
  }
  template <bool kBf16>
  MACO_FN void multiply(DiagonalSum<kBf16> (&sums)[kOwn]) const {
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j)
        sums[j].add(bits_as<Vec<u32, 4>>(xv[s][0]), bits_as<Vec<u32, 4>>(wv[s][j]));
    }
  }
  template <class A>
  MACO_FN void multiply(A (&acc)[kRows][kOwn][1]) const {
    MACO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      A w[kOwn][kVec];
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) unpack<kVec>(wv[s][j], w[j]);
      MACO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        A a[kVec];
        unpack<kVec>(xv[s][r], a);
        MACO_UNROLL
        for (int v = 0; v < kVec; ++v) {
          MACO_UNROLL
          for (int j = 0; j < kOwn; ++j) acc[r][j][0] = mul_add(a[v], w[j][v], acc[r][j][0]);
        }
      }
    }
  }
};

// Results of a warp, rows by columns of a slice: each lane gets one at a time and finishes it.
template <class C, class P, int kRows, int kOwn, int kParts, class A>
struct FewResults {
  static constexpr int kOut = kOwn / P::kParts, kCount = kRows * kOut;
  // Where each lane has a result at most, what finishes it is fetched while K goes by.
  static constexpr bool kFetches = kWarpLanes > 1 && kCount <= kWarpLanes;
  static MACO_FN int row(int i) { return i / kOut; }
  static MACO_FN int col(int i) { return warp() + i % kOut * kWarps; }
  static MACO_FN typename C::More fetch(const MatmulTile<C>& t, const Args& args, i64 n, i64 cols) {
    const int i = warp_lane();
    if (kFetches && i < kCount && row(i) < t.rows && col(i) < cols)
      return C::fetch(args, t.row + row(i), n + col(i));
    return {};
  }
  static MACO_FN A total(Context& ctx, const A (&parts)[kParts]) {
    A sum = parts[0];
    MACO_UNROLL
    for (int v = 1; v < kParts; ++v) sum = fn::add(sum, parts[v]);
    return team_reduce<WarpTeam>(ctx, sum, [](A p, A q) { return fn::add(p, q); });
  }
  static MACO_FN void store(Context& ctx, const MatmulTile<C>& t, const Args& args, i64 n, i64 cols,
                            const A (&acc)[kRows][kOwn][kParts], const typename C::More& more) {
    MACO_UNROLL
    for (int base = 0; base < kCount; base += kWarpLanes) {
      A mine = 0, other = 0;
      MACO_UNROLL
      for (int i = base; i < base + kWarpLanes && i < kCount; ++i) {
        const A sum = total(ctx, acc[row(i)][i % kOut]);
        if (warp_lane() == i - base) mine = sum;
        if constexpr (C::paired) {
          const A second = total(ctx, acc[row(i)][i % kOut + kOut]);
          if (warp_lane() == i - base) other = second;
        }
      }
      const int i = base + warp_lane();
      if (i < kCount && col(i) < cols) {
        if constexpr (kFetches && C::paired) {
          matmul_finish(t, args, row(i), n + col(i), more, mine, other);
        } else if constexpr (kFetches) {
          matmul_finish(t, args, row(i), n + col(i), more, mine);
        } else if constexpr (C::paired) {
          matmul_store(t, args, row(i), n + col(i), mine, other);
        } else {
          matmul_store(t, args, row(i), n + col(i), mine);
        }
      }
    }
  }
};

template <class C, class P>
struct MatmulRow;  // matmul_row.cuh

template <class C, class P, int kRows>
MACO_FN void matmul_few_transposed(Context& ctx, const Args& args, u32 index) {
  using X = typename C::X;
  using W = typename C::W;
  using A = AccOf<X>;
  constexpr int kVec = P::kVec;
  constexpr int kOwn = (int)((P::kPageCols + kWarps - 1) / kWarps);  // columns of a warp
  static_assert(!C::paired || (kOwn % 2 == 0 && P::kPageCols % kWarps == 0),
                "a warp has both columns of a pair");
  // a lone lane adds a vector at a time
  constexpr int kParts = kWarpLanes == 1 ? kVec : 1;
  constexpr i64 kStage =
      least(P::kWhole, round_down(P::kStageBytes / (kRows * (i64)sizeof(X)), P::kDepth));
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  // Whether the warps share a whole page evenly.
  constexpr bool kEven =
      kWarpLanes > 1 && P::kDepth % (kVec * kWarpLanes) == 0 && P::kPageCols % kWarps == 0;
  // Of the page's columns those of a slice that ends early: of each part the first.
  const auto is_there = [](int c, i64 cols) { return (C::paired ? c % (int)P::kCols : c) < cols; };
  X* a = (X*)ctx.scratch();
  constexpr bool kNormedRow = C::normed && kRows == 1 && kStage >= C::K;
  if constexpr (kNormedRow)
    matmul_stage_normed<C>(ctx, t, args, a);
  else
    matmul_scales<C, kRows == 1>(ctx, t, args);
  using Results = FewResults<C, P, kRows, kOwn, kParts, A>;
  constexpr int kStep = kVec * kWarpLanes;
  using Page = FewPage<P, (int)(P::kDepth / kStep), kRows, kOwn, kStage, X, W>;
  using Step = FewPage<P, 1, kRows, kOwn, kStage, X, W>;
  // Whether a lone row goes to tensor cores, where several do: all whole steps, so that the order
  // of sums doesn't depend on the tile. (Columns that the tile lacks are computed, and not stored.)
  constexpr bool kDiagonal = kEven && kFewOnCores<C> && kRows == 1;
  if constexpr (kDiagonal && kStage >= C::K && MatmulRow<C, P>::kSuits) {
    if constexpr (!kNormedRow) matmul_stage<C, 1, kStage>(ctx, t, args, a, 0, C::K);
    cta_sync();
    MatmulRow<C, P>::run(ctx, t, args, a);
    return;
  }
  PageTaker pages(ctx);

  for (i64 n = t.col; n < t.end; n += P::kCols) {
    const i64 cols = least(P::kCols, t.end - n);
    A acc[kRows][kOwn][kParts] = {};
    DiagonalSum<is_same<X, bf16>> sums[kOwn];
    const typename C::More more = Results::fetch(t, args, n, cols);
    for (i64 k = 0; k < C::K; k += P::kDepth) {
      if (k % kStage == 0 && (n == t.col || kStage < C::K)) {
        if (k > 0 || n > t.col) cta_sync();
        if constexpr (!kNormedRow)
          matmul_stage<C, kRows, kStage>(ctx, t, args, a, k, least(kStage, C::K - k));
        cta_sync();
      }
      const i64 depth = least(P::kDepth, C::K - k);
      const W* page = (const W*)pages.take();
      const X* x = a + k % kStage;
      if constexpr (kEven) {
        if ((kDiagonal || cols == P::kCols) && depth == P::kDepth) {
          Page whole;
          whole.load(x, page);
          pages.release();
          if constexpr (kDiagonal)
            whole.multiply(sums);
          else
            whole.multiply(acc);
          continue;
        }
      }
      const int full = (int)(depth / kVec), steps = kDiagonal ? (int)(depth / kStep) : 0;
      if constexpr (kDiagonal) {
        for (int s = 0; s < steps; ++s) {
          Step step;
          step.load(x + s * kStep, page + s * kStep);
          step.multiply(sums);
        }
      }
      for (int i = steps * kWarpLanes + warp_lane(); i < full; i += kWarpLanes) {
        A xs[kRows][kVec];
        MACO_UNROLL
        for (int r = 0; r < kRows; ++r) shared_vec<kVec>(x + r * kStage + i * kVec, xs[r]);
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = warp() + j * kWarps;
          if (is_there(c, cols)) {
            A ws[kVec];
            shared_vec<kVec>(page + c * P::kPitch + i * kVec, ws);
            MACO_UNROLL
            for (int r = 0; r < kRows; ++r) {
              MACO_UNROLL
              for (int v = 0; v < kVec; ++v)
                acc[r][j][v % kParts] = mul_add(xs[r][v], ws[v], acc[r][j][v % kParts]);
            }
          }
        }
      }
      for (int i = full * kVec + warp_lane(); i < depth; i += kWarpLanes) {  // the odd end of K
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = warp() + j * kWarps;
          if (is_there(c, cols)) {
            MACO_UNROLL
            for (int r = 0; r < kRows; ++r)
              acc[r][j][0] =
                  mul_add(to_acc(x[r * kStage + i]), to_acc(page[c * P::kPitch + i]), acc[r][j][0]);
          }
        }
      }
      pages.release();
    }
    if constexpr (kDiagonal) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) acc[0][j][0] = fadd(acc[0][j][0], sums[j].own());
    }
    Results::store(ctx, t, args, n, cols, acc, more);
  }
  pages.finish();
}

// ---- few rows, b[K,N]: a thread has a vector of columns, groups split K -----

// Adds up what the groups have and stores it: columns [n, n + cols) of the tile.
template <class C, class P, int kRows, int kOwn, int kAcross, class A>
MACO_FN void matmul_add_groups(const MatmulTile<C>& t, const Args& args,
                               const A (&acc)[kRows][kOwn][P::kVec], A* sums, i64 n, i64 cols) {
  // rows added up between two barriers
  constexpr int kAtOnce = (int)least(kRows, most(1, 4096 / (kWarps * P::kPitch * 4)));
  static_assert(kWarps * kAtOnce * P::kPitch * 4 <= 4096, "sums fit behind the staged rows");
  const int across = warp_lane() % kAcross;
  MACO_UNROLL
  for (int first = 0; first < kRows; first += kAtOnce) {
    MACO_UNROLL
    for (int r = first; r < first + kAtOnce && r < kRows; ++r) {
      MACO_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        MACO_UNROLL
        for (int v = 0; v < P::kVec; ++v) {
          A sum = acc[r][j][v];
          MACO_UNROLL
          for (int mask = kAcross; mask < kWarpLanes; mask *= 2)
            sum = fn::add(sum, shuffle_xor(sum, mask));
          const int c = (j * kAcross + across) * P::kVec + v;
          if (warp_lane() < kAcross && c < P::kPitch)
            sums[(warp() * kAtOnce + r - first) * P::kPitch + c] = sum;
        }
      }
    }
    cta_sync();
    for (int i = consumer_thread(); i < kAtOnce * P::kPitch; i += kConsumers) {
      A sum = sums[i];
      for (int w = 1; w < kWarps; ++w) sum = fn::add(sum, sums[w * kAtOnce * P::kPitch + i]);
      const i64 r = first + i / P::kPitch, c = i % P::kPitch;
      if (r < kRows && c < cols) matmul_store(t, args, r, n + c, sum);
    }
    cta_sync();
  }
}

template <class C, class P, int kRows>
MACO_FN void matmul_few_plain(Context& ctx, const Args& args, u32 index) {
  using X = typename C::X;
  using W = typename C::W;
  using A = AccOf<X>;
  constexpr int kVec = P::kVec;
  constexpr int kVecs = (int)(P::kPitch / kVec);                       // vectors across a page
  constexpr int kAcross = (int)least(power_above(kVecs), kWarpLanes);  // lanes across
  constexpr int kOwn = (kVecs + kAcross - 1) / kAcross;                // vectors of a lane
  constexpr int kGroups = kConsumers / kAcross;
  constexpr i64 kStage =
      least(P::kWhole, round_down(P::kStageBytes / (kRows * (i64)sizeof(X)), P::kDepth));
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  X* a = (X*)ctx.scratch();
  A* sums = (A*)(ctx.scratch() + P::kStageBytes);
  matmul_scales<C, kRows == 1>(ctx, t, args);
  const int across = warp_lane() % kAcross,
            group = warp() * (kWarpLanes / kAcross) + warp_lane() / kAcross;

  for (i64 n = t.col; n < t.end; n += P::kCols) {
    const i64 cols = least(P::kCols, t.end - n);
    A acc[kRows][kOwn][kVec] = {};
    for (i64 k = 0; k < C::K; k += P::kDepth) {
      if (k % kStage == 0 && (n == t.col || kStage < C::K))
        matmul_stage<C, kRows, kStage>(ctx, t, args, a, k, least(kStage, C::K - k));
      const i64 depth = least(P::kDepth, C::K - k);
      const W* page = (const W*)page_wait(ctx);
      if (!page) return;
      const X* x = a + k % kStage;
      for (int d = group; d < depth; d += kGroups) {
        MACO_UNROLL
        for (int j = 0; j < kOwn; ++j) {
          const int c = (j * kAcross + across) * kVec;
          A ws[kVec] = {};
          if (c + kVec <= cols) {
            shared_vec<kVec>(page + d * P::kPitch + c, ws);
          } else {
            for (int v = 0; v < kVec; ++v)
              if (c + v < cols) ws[v] = to_acc(page[d * P::kPitch + c + v]);
          }
          MACO_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const A xr = to_acc(x[r * kStage + d]);
            MACO_UNROLL
            for (int v = 0; v < kVec; ++v) acc[r][j][v] = mul_add(xr, ws[v], acc[r][j][v]);
          }
        }
      }
      page_release(ctx);
    }
    matmul_add_groups<C, P, kRows, kOwn, kAcross>(t, args, acc, sums, n, cols);
  }
}

// ---- many rows: each thread has a block of the result in registers ----------

// How the threads share a tile: kDown by kAcross threads, each with kHigh rows by kWide columns,
// which lie kDown rows and kAcross columns (kSide of them side by side) apart.
template <class C, class P>
struct MatmulBlocks {
  using X = typename C::X;
  using W = typename C::W;
  using A = AccOf<X>;
  static constexpr int kVec = P::kVec;
  static constexpr int kDown = kConsumers == 1 ? 1 : 16, kAcross = kConsumers / kDown;
  static constexpr int kHigh = (int)C::BM / kDown, kWide = (int)C::BN / kAcross;
  static_assert(C::BM % kDown == 0 && C::BN % kAcross == 0, "a tile is a whole number of blocks");
  static constexpr int kSide =
      C::transpose_b
          ? 1
          : vector_width(kWide, sizeof(W), least(16, kConsumers == 1 ? 16 : 4 * sizeof(W)));
  // Rows of a in the scratch memory, spaced as those of a page.
  static constexpr i64 kStage = least(
      P::kDepth, round_down(round_down(kScratchBytes / C::BM - 16, 32) / (i64)sizeof(X), kVec));
  static constexpr i64 kPitch = ((kStage * (i64)sizeof(X) + 15) / 16 | 1) * 16 / (i64)sizeof(X);
  static_assert(kStage > 0 && kPitch * C::BM * (i64)sizeof(X) <= kScratchBytes,
                "rows of a fit in the scratch memory");

  const int rows, cols;  // of the tile
  const int down = consumer_thread() / kAcross, across = consumer_thread() % kAcross;

  MACO_FN MatmulBlocks(const MatmulTile<C>& t) : rows((int)t.rows), cols((int)(t.end - t.col)) {}
  // Of the tile, that is column j of the block.
  MACO_FN int column(int j) const { return (j / kSide * kAcross + across) * kSide + j % kSide; }

  // b's element (d, column c): columns that the tile lacks read the last one, and nobody stores
  // what comes of it.
  MACO_FN A b_at(const W* page, int d, int c) const {
    c = c < cols ? c : cols - 1;
    return to_acc(page[C::transpose_b ? c * P::kPitch + d : d * P::kPitch + c]);
  }
  // Rows [d, d + kVec) of b.
  MACO_FN void load_b(const W* page, int d, A (&bs)[kVec][kWide]) const {
    if constexpr (C::transpose_b) {
      MACO_UNROLL
      for (int j = 0; j < kWide; ++j) {
        const int c = column(j);
        A run[kVec];
        shared_vec<kVec>(page + (c < cols ? c : cols - 1) * P::kPitch + d, run);
        MACO_UNROLL
        for (int e = 0; e < kVec; ++e) bs[e][j] = run[e];
      }
    } else {
      MACO_UNROLL
      for (int e = 0; e < kVec; ++e) {
        MACO_UNROLL
        for (int j = 0; j < kWide; j += kSide) {
          const int c = column(j);
          A run[kSide];
          if (c + kSide <= cols) {
            shared_vec<kSide>(page + (d + e) * P::kPitch + c, run);
          } else {
            for (int q = 0; q < kSide; ++q) run[q] = b_at(page, d + e, c + q);
          }
          MACO_UNROLL
          for (int q = 0; q < kSide; ++q) bs[e][j + q] = run[q];
        }
      }
    }
  }
  // Adds the products of the first `depth` columns of a and rows of b.
  MACO_FN void multiply(const A (&as)[kHigh][kVec], const A (&bs)[kVec][kWide], int depth,
                        A (&acc)[kHigh][kWide]) const {
    MACO_UNROLL
    for (int i = 0; i < kHigh; ++i) {
      // A lone thread leaves out the rows that the tile lacks; others of its warp would only
      // diverge.
      if (kConsumers > 1 || i < rows) {
        MACO_UNROLL
        for (int d = 0; d < kVec; ++d) {
          if (d < depth) {
            MACO_UNROLL
            for (int j = 0; j < kWide; ++j) acc[i][j] = mul_add(as[i][d], bs[d][j], acc[i][j]);
          }
        }
      }
    }
  }
  // Adds the products of `depth` staged columns of a and as many rows of b.
  MACO_FN void multiply_stage(const X* a, const W* b, int depth, A (&acc)[kHigh][kWide]) const {
    int d = 0;
    for (; d + kVec <= depth; d += kVec) {
      A as[kHigh][kVec], bs[kVec][kWide];
      MACO_UNROLL
      for (int i = 0; i < kHigh; ++i) shared_vec<kVec>(a + (down + i * kDown) * kPitch + d, as[i]);
      load_b(b, d, bs);
      multiply(as, bs, kVec, acc);
    }
    if (d < depth) {  // the odd end of K
      A as[kHigh][kVec] = {}, bs[kVec][kWide] = {};
      MACO_UNROLL
      for (int e = 0; e < kVec; ++e) {
        if (d + e < depth) {
          MACO_UNROLL
          for (int i = 0; i < kHigh; ++i) as[i][e] = to_acc(a[(down + i * kDown) * kPitch + d + e]);
          MACO_UNROLL
          for (int j = 0; j < kWide; ++j) bs[e][j] = b_at(b, d + e, column(j));
        }
      }
      multiply(as, bs, depth - d, acc);
    }
  }
  // Through the scratch memory: elements are finished by one loop (an activation is much code), and
  // neighbours store neighbours.
  MACO_FN void store(const MatmulTile<C>& t, const Args& args, A* sums,
                     const A (&acc)[kHigh][kWide]) const {
    constexpr int kAtOnce = (int)least(kHigh, kScratchBytes / (kDown * C::BN * 4));
    static_assert(kAtOnce > 0, "a row of blocks fits in the scratch memory");
    MACO_UNROLL
    for (int first = 0; first < kHigh; first += kAtOnce) {
      if (first > 0) cta_sync();
      MACO_UNROLL
      for (int i = first; i < first + kAtOnce && i < kHigh; ++i) {
        MACO_UNROLL
        for (int j = 0; j < kWide; ++j)
          sums[((i - first) * kDown + down) * C::BN + column(j)] = acc[i][j];
      }
      cta_sync();
      for (int i = consumer_thread(); i < kAtOnce * kDown * C::BN; i += kConsumers) {
        const int row = first * kDown + i / (int)C::BN;
        if (row < C::BM) matmul_store(t, args, row, t.col + i % (int)C::BN, sums[i]);
      }
    }
  }
};

template <class C, class P>
MACO_FN void matmul_many(Context& ctx, const Args& args, u32 index) {
  using Blocks = MatmulBlocks<C, P>;
  using A = typename Blocks::A;
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  const Blocks blocks(t);
  auto* a = (typename C::X*)ctx.scratch();

  A acc[Blocks::kHigh][Blocks::kWide] = {};
  for (i64 k = 0; k < C::K; k += P::kDepth) {
    const int depth = (int)least(P::kDepth, C::K - k);
    const typename C::W* page = nullptr;
    for (int s = 0; s < depth; s += (int)Blocks::kStage) {
      const int part = (int)least(Blocks::kStage, depth - s);
      // Around the first staging lie the barriers of page_release and page_wait.
      if (s > 0) cta_sync();
      matmul_stage<C, C::BM, Blocks::kPitch>(ctx, t, args, a, k + s, part);
      if (s == 0) {
        page = (const typename C::W*)page_wait(ctx);
        if (!page) return;
      } else {
        cta_sync();
      }
      blocks.multiply_stage(a, page + s * (C::transpose_b ? 1 : P::kPitch), part, acc);
    }
    page_release(ctx);
  }
  blocks.store(t, args, (A*)ctx.scratch(), acc);
}

}  // namespace maco::ops
