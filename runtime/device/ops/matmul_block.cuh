// matmul of many rows without tensor cores.

namespace maco::ops {

// ---- many rows: each thread has a block of the result in registers ----------

// How the threads share a tile: kDown by kAcross threads, each with kHigh rows by kWide columns. A
// thread's rows are kDown apart; its columns are kAcross apart, in groups of kSide adjacent ones.
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
  // Rows of a in the scratch memory, with the same padding as those of a page.
  static constexpr i64 kStage = least(
      P::kDepth, round_down(round_down(kScratchBytes / C::BM - 16, 32) / (i64)sizeof(X), kVec));
  static constexpr i64 kPitch = ((kStage * (i64)sizeof(X) + 15) / 16 | 1) * 16 / (i64)sizeof(X);
  static_assert(kStage > 0 && kPitch * C::BM * (i64)sizeof(X) <= kScratchBytes,
                "rows of a fit in the scratch memory");

  const int rows;  // of the tile
  const int down, across;

  MACO_FN MatmulBlocks(const MatmulTile<C>& t)
      : rows((int)t.rows), down(down_of()), across(across_of()) {}
  // A warp has kLanesDown by kLanesAcross threads, so that it reads as few different vectors of
  // both operands as possible.
  static constexpr int kLanesDown = kConsumers == 1 ? 1 : 4, kLanesAcross = kConsumers == 1 ? 1 : 8;
  static constexpr int kWarpsAcross = kAcross / kLanesAcross;
  static_assert(kAcross % kLanesAcross == 0 && kDown % kLanesDown == 0, "warps share the tile");
  static MACO_FN int down_of() {
    return consumer_thread() / (kLanesDown * kLanesAcross) / kWarpsAcross * kLanesDown +
           consumer_thread() / kLanesAcross % kLanesDown;
  }
  static MACO_FN int across_of() {
    return consumer_thread() / (kLanesDown * kLanesAcross) % kWarpsAcross * kLanesAcross +
           consumer_thread() % kLanesAcross;
  }
  // The tile's column that is column j of the thread's block.
  MACO_FN int column(int j) const { return (j / kSide * kAcross + across) * kSide + j % kSide; }

  // Columns that the tile lacks are whatever is in the page; their sums aren't stored.
  MACO_FN A b_at(const W* page, int d, int c) const {
    return to_acc(page[C::transpose_b ? c * P::kPitch + d : d * P::kPitch + c]);
  }
  // Rows [d, d + kVec) of b.
  MACO_FN void load_b(const W* page, int d, A (&bs)[kVec][kWide]) const {
    if constexpr (C::transpose_b) {
      const W* const own = page + across * P::kPitch + d;
      MACO_UNROLL
      for (int j = 0; j < kWide; ++j) {
        A run[kVec];
        unpack(shared_raw<kVec>(own + j * kAcross * P::kPitch), run);
        MACO_UNROLL
        for (int e = 0; e < kVec; ++e) bs[e][j] = run[e];
      }
    } else {
      const W* const own = page + d * P::kPitch + across * kSide;
      MACO_UNROLL
      for (int e = 0; e < kVec; ++e) {
        MACO_UNROLL
        for (int j = 0; j < kWide; j += kSide) {
          A run[kSide];
          unpack(shared_raw<kSide>(own + e * P::kPitch + j * kAcross), run);
          MACO_UNROLL
          for (int q = 0; q < kSide; ++q) bs[e][j + q] = run[q];
        }
      }
    }
  }
  // Adds the products of columns [d, d + depth) of a and rows of b, for one row `as`.
  MACO_FN void multiply_row(const A (&as)[kVec], const A (&bs)[kVec][kWide], int depth,
                            A (&acc)[kWide]) const {
    MACO_UNROLL
    for (int d = 0; d < kVec; ++d) {
      if (d < depth) {
        MACO_UNROLL
        for (int j = 0; j < kWide; ++j) acc[j] = fn::mul_add(as[d], bs[d][j], acc[j]);
      }
    }
  }
  // Adds the products of `depth` staged columns of a and as many rows of b.
  MACO_FN void multiply_stage(const X* a, const W* b, int depth, A (&acc)[kHigh][kWide]) const {
    const X* const own = a + down * kPitch;
    int d = 0;
    for (; d + kVec <= depth; d += kVec) {
      A bs[kVec][kWide];
      load_b(b, d, bs);
      // The next row is loaded while one is multiplied.
      A as[2][kVec];
      unpack(shared_raw<kVec>(own + d), as[0]);
      MACO_UNROLL
      for (int i = 0; i < kHigh; ++i) {
        // A lone thread leaves out the rows that the tile lacks; the threads of a warp would only
        // diverge.
        if (kConsumers == 1 && i >= rows) break;
        if (i + 1 < kHigh)
          unpack(shared_raw<kVec>(own + (i + 1) * kDown * kPitch + d), as[(i + 1) % 2]);
        multiply_row(as[i % 2], bs, kVec, acc[i]);
      }
    }
    if (d < depth) {  // the odd end of K
      A bs[kVec][kWide] = {};
      MACO_UNROLL
      for (int e = 0; e < kVec; ++e) {
        if (d + e < depth) {
          MACO_UNROLL
          for (int j = 0; j < kWide; ++j) bs[e][j] = b_at(b, d + e, column(j));
        }
      }
      MACO_UNROLL
      for (int i = 0; i < kHigh; ++i) {
        A as[kVec] = {};
        MACO_UNROLL
        for (int e = 0; e < kVec; ++e)
          if (d + e < depth) as[e] = to_acc(own[i * kDown * kPitch + d + e]);
        multiply_row(as, bs, depth - d, acc[i]);
      }
    }
  }
  // Stores through the scratch memory: one loop finishes elements (an activation is much code), and
  // adjacent threads store adjacent elements. A sum of -0 becomes 0, as where operands come in
  // blocks, which zeros fill up.
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
          sums[((i - first) * kDown + down) * C::BN + column(j)] = fn::add(acc[i][j], A(0));
      }
      cta_sync();
      for (int i = consumer_thread(); i < kAtOnce * kDown * C::BN; i += kConsumers) {
        const int row = first * kDown + i / (int)C::BN;
        if (row < C::BM) matmul_store(t, args, row, t.col + i % (int)C::BN, sums[i]);
      }
    }
  }
};

// The next columns of a, which are loaded into registers while the columns before are multiplied.
template <class C, class Blocks>
struct StageAhead {
  using X = typename C::X;
  static constexpr int V = vector_width(C::K % 8 == 0 ? 8 : C::K, sizeof(X));
  static constexpr int kRow = ((int)Blocks::kStage + V - 1) / V;  // vectors
  static constexpr int kEach = ((int)C::BM * kRow + kConsumers - 1) / kConsumers;
  Vec<X, V> v[kEach];

  // Calls f(vector, row, column) for this thread's vectors.
  template <class F>
  MACO_FN void each(F f) {
    MACO_UNROLL
    for (int e = 0; e < kEach; ++e) {
      const int n = consumer_thread() + e * kConsumers, row = n / kRow;
      if (row < C::BM) f(v[e], row, n % kRow * V);
    }
  }
  // Loads columns [k, k + depth).
  MACO_FN void load(const MatmulTile<C>& t, const Args& args, i64 k, int depth) {
    const X* const a = args.ptr<const X>(0) + t.row * C::K + k;
    each([&](Vec<X, V>& x, int row, int i) {
      x = {};
      if (row < t.rows && i < depth) x = gload_vec<V>(a + row * C::K + i);
    });
  }
  MACO_FN void put(X* to) {
    each([&](Vec<X, V>& x, int row, int i) { put_run<false>(to + row * Blocks::kPitch, i, x); });
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
  // A lone thread would have to hold all of them.
  constexpr bool kAhead = kConsumers > 1 && !C::a_packets && !C::Rows::kChange;
  StageAhead<C, Blocks> ahead;
  const auto part_of = [](i64 at) {
    const i64 left = P::kDepth - at % P::kDepth;
    return (int)least(Blocks::kStage, least(left, C::K - at));
  };
  if constexpr (kAhead) ahead.load(t, args, 0, part_of(0));
  for (i64 k = 0; k < C::K; k += P::kDepth) {
    const int depth = (int)least(P::kDepth, C::K - k);
    const typename C::W* page = nullptr;
    for (int s = 0; s < depth; s += (int)Blocks::kStage) {
      const int part = (int)least(Blocks::kStage, depth - s);
      // The barriers of page_release and page_wait surround the first staging.
      if (s > 0) cta_sync();
      if constexpr (kAhead)
        ahead.put(a);
      else
        matmul_stage<C, C::BM, Blocks::kPitch>(ctx, t, args, a, k + s, part);
      if (s == 0) {
        page = (const typename C::W*)page_wait(ctx);
        if (!page) return;
      } else {
        cta_sync();
      }
      if constexpr (kAhead)
        if (const i64 next = k + s + part; next < C::K) ahead.load(t, args, next, part_of(next));
      blocks.multiply_stage(a, page + s * (C::transpose_b ? 1 : P::kPitch), part, acc);
    }
    page_release(ctx);
  }
  blocks.store(t, args, (A*)ctx.scratch(), acc);
}

}  // namespace maco::ops
